#include "agent/core/earlier_attempts.h"

#include <signal.h>

#include <catch2/catch.hpp>

namespace muster {
namespace {

AttemptCause cause(int attempt, std::string text) {
  return {.attempt = attempt,
          .end = {.local_rank = {1},
                  .rank = {3},
                  .pid = 77,
                  .exit = attempt % 2 == 0 ? WorkerExit{.status = 1}
                                           : WorkerExit{.killed = true, .status = SIGSEGV}},
          .text = std::move(text)};
}

TEST_CASE("earlier attempts: the text is empty without an earlier attempt", "[unit][agent]") {
  CHECK(EarlierAttempts().text().empty());
}

TEST_CASE("earlier attempts: each attempt has one line", "[unit][agent]") {
  EarlierAttempts attempts;
  attempts.add(cause(0, "RuntimeError: boom"));
  attempts.add(cause(1, ""));
  CHECK(attempts.text() ==
        "Earlier attempts (the first cause of each):\n"
        "  attempt 0: rank 3 (local_rank: 1), exitcode: 1: RuntimeError: boom\n"
        "  attempt 1: rank 3 (local_rank: 1), exitcode: -11 (SIGSEGV)");
}

TEST_CASE("earlier attempts: of thousands the first and the last are kept", "[unit][agent]") {
  EarlierAttempts attempts;
  for (int i = 0; i < 2000; ++i)
    attempts.add(cause(i, "x"));
  CHECK(attempts.kept().size() == EarlierAttempts::kFirstKept + EarlierAttempts::kLastKept);
  CHECK(attempts.left_out() == 1980);
  CHECK_THAT(attempts.text(), Catch::Contains("attempt 9:") && Catch::Contains("(and 1980 more)") &&
                                  Catch::Contains("attempt 1990:") &&
                                  Catch::Contains("attempt 1999:"));
}

TEST_CASE("earlier attempts: the line of a cause is its last line, cut to the limit",
          "[unit][agent]") {
  CHECK(cause_line("").empty());
  CHECK(cause_line("\n\n").empty());
  CHECK(cause_line("Traceback:\n  at x\nValueError: no\n\n") == "ValueError: no");
  CHECK(cause_line("\x1b[31mred").find('\x1b') == std::string::npos);
  const std::string line = cause_line(std::string(1000, 'x'));
  CHECK(line.size() == kMaxCauseBytes);
  CHECK_THAT(line, Catch::EndsWith("x..."));
  std::string umlauts;
  for (int i = 0; i < 500; ++i)
    umlauts += "\u00fc";
  CHECK(cause_line(umlauts).size() % 2 == 1);  // Whole characters, and three dots.
}

}  // namespace
}  // namespace muster
