#include <csignal>

#include <catch2/catch.hpp>

#include "tests/unit/launcher/plan_fixture.h"

namespace muster::testing {
namespace {

using Catch::Matchers::Contains;
using Signals = std::vector<int>;

TEST_CASE_METHOD(PlanFixture, "plan: which signals are passed on", "[unit][launcher]") {
  CHECK(plan({"x"})->agent.signals_to_forward == Signals{SIGUSR1});
  CHECK_FALSE(plan({"x"})->agent.forwards_ignored);
  CHECK(plan({"--signals-to-forward=SIGALRM,USR2", "x"})->agent.signals_to_forward ==
        Signals{SIGALRM});
  CHECK(plan({"--signals-to-forward=SIGALRM", "x"})->agent.forwards_ignored);
  CHECK(plan({"--signals-to-forward=", "x"})->agent.signals_to_forward.empty());
  CHECK(plan({"--signals-to-handle=SIGUSR1", "x"})->agent.signals_to_forward.empty());
  CHECK(plan({"--signals-to-handle=SIGINT", "--signals-to-forward=SIGTERM", "x"})
            ->agent.signals_to_forward == Signals{SIGTERM});
}

TEST_CASE_METHOD(PlanFixture, "plan: signals that cannot be passed on", "[unit][launcher]") {
  for (const char* wrong : {"SIGKILL", "SIGCHLD", "SIGTERM", "SIGTSTP", "SIGUSR1,SIGHUP"}) {
    INFO(wrong);
    const auto result = plan({std::string("--signals-to-forward=") + wrong, "x"});
    REQUIRE(result.has_error());
    CHECK_THAT(result.error().message, Contains("--signals-to-forward"));
  }
}

TEST_CASE_METHOD(PlanFixture, "plan: how a node learns that it goes", "[unit][launcher]") {
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  using Notices = std::vector<NoticeSignal>;
  CHECK(plan({"x"})->agent.notice_signals.empty());
  CHECK(plan({"x"})->agent.notice_from.empty());
  CHECK(plan({"x"})->agent.notice_left == seconds(120));
  const auto both = plan({"--notice-signals=SIGUSR1@90,SIGALRM", "--notice-seconds=29.5", "x"});
  REQUIRE(both.has_value());
  CHECK(both->agent.notice_signals ==
        Notices{{SIGUSR1, seconds(90)}, {SIGALRM, milliseconds(29500)}});
  CHECK(both->agent.signals_to_forward.empty());  // Not SIGUSR1, which has another meaning now.
  CHECK(plan({"--notice-signals=SIGALRM@0", "x"})->agent.signals_to_forward == Signals{SIGUSR1});
  CHECK(plan({"--signals-to-handle=SIGINT", "--notice-signals=SIGTERM@25", "x"})
            ->agent.notice_signals == Notices{{SIGTERM, seconds(25)}});
  CHECK(plan({"--notice-from=watch aws", "x"})->agent.notice_from == "watch aws");
}

TEST_CASE_METHOD(PlanFixture, "plan: signals and times that cannot be a notice",
                 "[unit][launcher]") {
  for (const char* wrong : {"SIGTERM@5", "SIGINT@5", "SIGTSTP@5", "SIGKILL@5", "SIGNONE@5", "@5",
                            "SIGUSR1@", "SIGUSR1@x", "SIGUSR1@-1", "SIGUSR1@604801", "SIGUSR1@nan",
                            "SIGUSR1@5,SIGUSR1@6", ",SIGUSR1@5", "SIGUSR1 SIGALRM"}) {
    INFO(wrong);
    const auto result = plan({std::string("--notice-signals=") + wrong, "x"});
    REQUIRE(result.has_error());
    CHECK_THAT(result.error().message, Contains("--notice-signals"));
  }
  const auto twice = plan({"--notice-signals=SIGALRM@5", "--signals-to-forward=SIGALRM", "x"});
  REQUIRE(twice.has_error());
  CHECK_THAT(twice.error().message, Contains("SIGALRM") && Contains("--notice-signals"));
  for (const char* wrong :
       {"--notice-seconds=-1", "--notice-seconds=nan", "--notice-seconds=604801"})
    CHECK_THAT(plan({wrong, "x"}).error().message, Contains("--notice-seconds"));
}

}  // namespace
}  // namespace muster::testing
