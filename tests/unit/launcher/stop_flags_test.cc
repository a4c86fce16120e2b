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

}  // namespace
}  // namespace muster::testing
