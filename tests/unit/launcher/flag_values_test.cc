// The values of flags: endpoints, --rdzv-conf, stream maps, signals; and the search for Python.
#include <signal.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "launcher/python_command.h"
#include "launcher/rendezvous_flags.h"
#include "launcher/stream_flags.h"
#include "rendezvous/core/python_text.h"
#include "tests/unit/launcher/plan_fixture.h"

namespace muster::testing {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("endpoint: host, port, brackets", "[unit][launcher]") {
  const std::map<std::string, Endpoint> good = {
      {"", {"localhost", {}}},
      {"  h  ", {"h", {}}},
      {"h:29400", {"h", 29400}},
      {"node-1.example_x.org:0", {"node-1.example_x.org", 0}},
      {"10.0.0.1:65535", {"10.0.0.1", 65535}},
      {"[::1]", {"::1", {}}},
      {"[::1]:5", {"::1", 5}},
      {"::1", {"::1", {}}},
      {"2001:db8::5", {"2001:db8::5", {}}},
      {"1:2:3:4:5:6:7:8", {"1:2:3:4:5:6:7:8", {}}},
      {"fe80::1%eth0", {"fe80::1%eth0", {}}},
      {"fe80::1:29400", {"fe80::1", 29400}},  // As torchrun splits it.
  };
  for (const auto& [text, endpoint] : good) {
    INFO(text);
    const auto parsed = parse_endpoint(text, "--rdzv-endpoint");
    REQUIRE(parsed.has_value());
    CHECK(*parsed == endpoint);
  }
  for (const char* bad : {"h:", "h:x", "h:65536", "h:123456", "h:-1", "a b:1", ":1", "h/x", "[]"})
    CHECK_FALSE(parse_endpoint(bad, "--rdzv-endpoint").has_value());
  CHECK(to_text({"::1", 5}) == "[::1]:5");
  CHECK(to_text({"h", {}}) == "h");
}

TEST_CASE("rdzv-conf: keys and values are checked", "[unit][launcher]") {
  const auto conf = parse_rendezvous_conf(
      " join_timeout = 60 , is_host=True,join_timeout=70,use_libuv=0", "c10d", "--rdzv-conf");
  REQUIRE(conf.has_value());
  CHECK(conf->values == std::map<std::string, std::string>{
                            {"join_timeout", "70"}, {"is_host", "True"}, {"use_libuv", "0"}});
  CHECK(conf->without_effect == std::vector<std::string>{"use_libuv"});
  for (const char* empty : {"  ", "''", " \" \""})
    CHECK(parse_rendezvous_conf(empty, "c10d", "f")->values.empty());
  // A script that quotes twice adds these quotes.
  const auto quoted = parse_rendezvous_conf(" 'join_timeout=5,is_host=1' ", "c10d", "--rdzv-conf");
  REQUIRE(quoted.has_value());
  CHECK(quoted->values ==
        std::map<std::string, std::string>{{"join_timeout", "5"}, {"is_host", "1"}});
  const std::map<std::string, std::string> bad = {
      {"a", "has no value"},
      {"=1", "has no name"},
      {"join_timeout=60,", "has no name"},
      {"join_timeout=", "has no value"},
      {"'join_timeout=5", "there is no setting"},
      {"join_timeout=1.5", "integer above 0"},
      {"join_timeout=0", "integer above 0"},
      {"keep_alive_interval=x", "must be an integer"},
      {"is_host=perhaps", "true or false"},
      {"store_type=tree", "tcp or file"},
      {"backend=c10d", "there is no setting 'backend'"},
      {"jion_timeout=1", "join_timeout"},  // The error lists the known settings.
  };
  for (const auto& [text, says] : bad) {
    INFO(text);
    const auto parsed = parse_rendezvous_conf(text, "c10d", "--rdzv-conf");
    REQUIRE_FALSE(parsed.has_value());
    CHECK_THAT(parsed.error().message, Contains("--rdzv-conf") && Contains(says));
  }
}

TEST_CASE("streams: one digit for all, or one for each rank", "[unit][launcher]") {
  CHECK(parse_streams("3", "-r")->at(7) == StreamSet{.out = true, .err = true});
  CHECK(parse_streams("0", "-r")->at(0) == StreamSet{});
  const auto map = parse_streams("0:3,12:1,0:2", "-r");
  REQUIRE(map.has_value());
  CHECK(map->at(0) == StreamSet{.out = false, .err = true});
  CHECK(map->at(12) == StreamSet{.out = true, .err = false});
  CHECK(map->at(1) == StreamSet{});
  for (const char* bad : {"", "4", "33", "0:4", "0:", ":1", "0:1,", "a:1", "-1:1", "0:1 ", "0;1",
                          "0:1:1", "1234567890:1"})
    CHECK_FALSE(parse_streams(bad, "-r").has_value());
}

TEST_CASE("ranks: integers with commas between", "[unit][launcher]") {
  CHECK(parse_ranks("", "f")->empty());
  CHECK(*parse_ranks("0, 2 ,+3,-5", "f") == std::set<int>{-1, 0, 2, 3});
  for (const char* bad : {",", "0,", "a", "1.0", "0-3"})
    CHECK_FALSE(parse_ranks(bad, "f").has_value());
}

TEST_CASE("signals: names to numbers", "[unit][launcher]") {
  const auto list = parse_signals("SIGTERM, SIGUSR1 ,SIGTERM,USR2,,sigint,SIGRTMIN", "f");
  REQUIRE(list.has_value());
  CHECK(list->numbers == std::vector<int>{SIGTERM, SIGUSR1, SIGRTMIN});
  CHECK(list->unknown == std::vector<std::string>{"USR2", "", "sigint"});
  CHECK(parse_signals("SIGRTMAX", "f")->numbers == std::vector<int>{SIGRTMAX});
  for (const char* bad : {"SIGKILL", "SIGTERM,SIGSTOP", "SIGCHLD"})
    CHECK_FALSE(parse_signals(bad, "f").has_value());
}

TEST_CASE("python text: quoting", "[unit][launcher]") {
  CHECK(python_repr("a") == "'a'");
  CHECK(python_repr("it's") == "\"it's\"");
  CHECK(python_repr("it's \"x\"") == "'it\\'s \"x\"'");
  CHECK(python_repr(std::string_view("\n\t\r\\\x01\x7f", 6)) == "'\\n\\t\\r\\\\\\x01\\x7f'");
}

struct PythonFixture {
  Environment environment{{"PATH", "/a::/b"}};
  std::set<std::string> programs;
  std::set<std::string> files;
  std::string argv0 = "muster";

  std::string found() const {
    const auto python = find_python(environment, argv0, first_of(programs), first_of(files));
    return python ? *python : "none";
  }
};

TEST_CASE_METHOD(PythonFixture, "python: the order of the places where it is looked for",
                 "[unit][launcher]") {
  CHECK(found() == "none");
  programs.insert("/b/python");
  CHECK(found() == "/b/python");
  programs.insert("/b/python3");
  CHECK(found() == "/b/python3");
  programs.insert("./python3");  // Found by the empty entry of PATH.
  CHECK(found() == "./python3");
  argv0 = "/opt/bin/torchrun";
  programs.insert("/opt/bin/python");
  CHECK(found() == "/opt/bin/python");
  environment["CONDA_PREFIX"] = "/conda";
  CHECK(found() == "/opt/bin/python");  // The conda environment has no Python.
  programs.insert("/conda/bin/python");
  CHECK(found() == "/conda/bin/python");
  environment["VIRTUAL_ENV"] = "/venv/";
  programs.insert("/venv/bin/python");
  CHECK(found() == "/venv/bin/python");
  environment["PYTHON_EXEC"] = "python3.9";
  CHECK(found() == "python3.9");
  environment["PYTHON_EXEC"] = "";
  CHECK(found() == "/venv/bin/python");
}

TEST_CASE_METHOD(PythonFixture, "python: the one beside a muster that was called by its path",
                 "[unit][launcher]") {
  programs = {"/conda/bin/python3", "/venv/bin/python3", "/usr/bin/python3"};
  environment = {{"PATH", "/venv/bin:/usr/bin"}, {"CONDA_PREFIX", "/conda"}};
  for (const char* marker : {"/venv/bin/../pyvenv.cfg", "/venv/bin/../conda-meta"}) {
    files = {marker};
    for (const char* name : {"muster", "torchrun", "muster-launch"}) {
      argv0 = std::string("/venv/bin/") + name;
      CHECK(found() == "/venv/bin/python3");
    }
    argv0 = "/usr/bin/muster";
    CHECK(found() == "/conda/bin/python3");
    argv0 = "muster";
    CHECK(found() == "/conda/bin/python3");
  }
  argv0 = "/venv/bin/muster";
  programs.erase("/venv/bin/python3");
  CHECK(found() == "/conda/bin/python3");
}

TEST_CASE_METHOD(PythonFixture, "python: the one beside the torchrun that PATH finds",
                 "[unit][launcher]") {
  argv0 = "torchrun";
  programs = {"/b/torchrun", "/b/python3", "/a/python3"};
  CHECK(found() == "/b/python3");
  argv0 = "muster";
  CHECK(found() == "/a/python3");
}

}  // namespace
}  // namespace muster::testing
