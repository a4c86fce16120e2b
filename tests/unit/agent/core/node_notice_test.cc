#include "agent/core/node_notice.h"

#include <vector>

#include <catch2/catch.hpp>

namespace muster {
namespace {

using namespace std::chrono_literals;

TEST_CASE("node notice: a stop of the workers fits into the time that is left", "[unit][notice]") {
  CHECK(until_stop(120s, 30s) == 90s);
  CHECK(until_stop(60s, 30s) == 30s);
  CHECK(until_stop(30s, 30s) == 15s);  // The workers have one half.
  CHECK(until_stop(0s, 30s) == 0s);
  CHECK(until_stop(120s, 0s) == 120s);
}

TEST_CASE("node notice: a line of the program", "[unit][notice]") {
  CHECK(read_notice_line("120") == NodeGoes{120s, ""});
  CHECK(read_notice_line("  29.5\tspot instance, 30 s \r") ==
        NodeGoes{29500ms, "spot instance, 30 s"});
  CHECK(read_notice_line("0 now") == NodeGoes{0s, "now"});
  CHECK(read_notice_line("604800") == NodeGoes{kMaxNoticeTime, ""});
  for (const char* line :
       {"", " ", "soon", "120s", "-1", "604801", "nan", "inf", "1e300", "0x10", "12,5", "+5"}) {
    INFO(line);
    CHECK_FALSE(read_notice_line(line));
  }
}

std::vector<std::string> found_in(std::string_view output, std::size_t piece) {
  NoticeProgramLines lines;
  std::vector<std::string> all;
  const auto read = [&] {
    while (const auto found = lines.next())
      all.push_back(found->notice
                        ? std::to_string(found->notice->left / 1s) + " " + found->notice->reason
                        : found->problem);
  };
  for (std::size_t at = 0; at < output.size(); at += piece) {
    lines.add(output.substr(at, piece));
    read();
  }
  lines.end();
  read();
  return all;
}

TEST_CASE("node notice: where the output is cut does not matter", "[unit][notice]") {
  const std::string output = "\n120 spot\n\nhello\n60 spot\n30 no newline";
  const auto all = found_in(output, output.size());
  REQUIRE(all.size() == 4);
  CHECK(all[0] == "120 spot");
  CHECK(all[1] ==
        "its line \"hello\" is no notice: expected SECONDS or SECONDS REASON, at most 604800 s");
  CHECK(all[2] == "60 spot");
  CHECK(all[3] == "30 no newline");
  for (std::size_t piece = 1; piece < output.size(); ++piece)
    CHECK(found_in(output, piece) == all);
}

TEST_CASE("node notice: a line that is too long is skipped to its end", "[unit][notice]") {
  const std::size_t most = NoticeProgramLines::kMaxLineBytes;
  CHECK(found_in("5 " + std::string(most - 2, 'x'), 7).front().substr(0, 3) == "5 x");
  for (const std::size_t piece : {std::size_t{1}, std::size_t{1000}, std::size_t{100'000}}) {
    const auto all = found_in("5 " + std::string(50'000, 'x') + "\n7 y\n", piece);
    REQUIRE(all.size() == 2);
    CHECK_THAT(all[0], Catch::StartsWith("its line \"5 xxx"));
    CHECK(all[1] == "7 y");
  }
}

TEST_CASE("node notice: a program that prints anything does not fill the log", "[unit][notice]") {
  std::string output;
  for (int i = 0; i < 1000; ++i)
    output += "line\n";
  const auto all = found_in(output + "9 last\n", 64);
  REQUIRE(all.size() == NoticeProgramLines::kMaxProblems + 1);
  CHECK_THAT(all[2], Catch::EndsWith("further such lines are not shown"));
  CHECK(all[3] == "9 last");
}

TEST_CASE("node notice: the pause before a restart of the program grows", "[unit][notice]") {
  CHECK(pause_before_restart(1) == 1s);
  CHECK(pause_before_restart(2) == 2s);
  CHECK(pause_before_restart(6) == 32s);
  CHECK(pause_before_restart(7) == 60s);
  CHECK(pause_before_restart(1'000'000) == 60s);
}

}  // namespace
}  // namespace muster
