#include "musterctl/process_texts.h"

#include <string>
#include <string_view>

#include <catch2/catch.hpp>

namespace muster::ctl {
namespace {

using namespace std::string_literals;

// With zero bytes in place of the bars.
std::string shown(std::string cmdline) {
  for (char& c : cmdline)
    if (c == '|') c = '\0';
  return command_text(cmdline);
}

TEST_CASE("process texts: a command is its program and its script, without arguments",
          "[unit][musterctl]") {
  CHECK(shown("/usr/bin/python3|-u|train.py|--password=hunter2|") == "/usr/bin/python3 train.py");
  CHECK(shown("python3.11|-W|ignore|-Xdev|-X|importtime|-B|/srv/train.py|secret|") ==
        "python3.11 /srv/train.py");
  CHECK(shown("python|-u|-m|pkg.train|secret|") == "python -m pkg.train");
  CHECK(shown("python|-mpkg|secret|") == "python -m pkg");
  CHECK(shown("sh|worker.sh|secret|") == "sh worker.sh");
  CHECK(shown("./train|train.bin|secret|") == "./train");
  CHECK(shown("/opt/python-tools/run|secret|") == "/opt/python-tools/run");
}

TEST_CASE("process texts: code and options are not taken for a script", "[unit][musterctl]") {
  CHECK(shown("python|-c|print('secret')|") == "python -c");
  CHECK(shown("python|-uc|print('secret')|") == "python -c");
  CHECK(shown("python|-|secret|") == "python");
  CHECK(shown("python|--check-hash-based-pycs|always|x.py|secret|") == "python x.py");
  CHECK(shown("python|-m|") == "python -m ");
  CHECK(shown("python|-W|") == "python");
  CHECK(shown("bash|-c|curl secret|") == "bash");
  CHECK(shown("bash|+x|secret|") == "bash");
  CHECK(shown("|||").empty());
  CHECK(shown("").empty());
  CHECK(shown(std::string(5000, 'x')).size() < 300);
}

TEST_CASE("process texts: the fields of stat are found behind any process name",
          "[unit][musterctl]") {
  const auto fields = parse_stat_fields(
      "71 (a) R (b) S 7 71 70 0 -1 4194304 1 0 0 0 250 50 0 0 20 0 1 0 9 8192 300 "
      "18446744073709551615\n");
  REQUIRE(fields);
  CHECK(fields->name == "a) R (b");
  CHECK(fields->parent == 7);
  CHECK(fields->session == 70);
  CHECK(fields->cpu_ticks == 300);
  CHECK(fields->resident_pages == 300);
  CHECK_FALSE(
      parse_stat_fields("71 (a) Z 7 71 70 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 9 0 0 0 0"));
  for (const char* bad : {"", "71", "71 (a", "71 a) S", ")(", "71 (a) S 1 2 3"})
    CHECK_FALSE(parse_stat_fields(bad));
}

TEST_CASE("process texts: an environment", "[unit][musterctl]") {
  CHECK(parse_environment("A=1\0B=x=y\0none\0A=2\0E=\0"s) ==
        Environment{{"A", "1"}, {"B", "x=y"}, {"E", ""}});
  CHECK(parse_environment("").empty());
}

}  // namespace
}  // namespace muster::ctl
