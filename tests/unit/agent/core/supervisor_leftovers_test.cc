// What an attempt has left: how long the supervisor lets it live.
#include <chrono>

#include <catch2/catch.hpp>

#include "agent/core/supervisor.h"

namespace muster {
namespace {
using namespace std::chrono_literals;

constexpr WorkerExit kSuccess{};
constexpr WorkerExit kFailure{.status = 6};
constexpr int kStop = 15;

struct LeftoverTest {
  Supervisor supervisor{
      {.local_world_size = 2, .max_restarts = 1, .stop_timeout = 20s, .leftover_timeout = 47s}};
  Instant now{};

  LeftoverTest() { run(); }
  void run() {
    happens(RendezvousCompleted{});
    happens(WorkerStarted{LocalRank{0}});
    happens(WorkerStarted{LocalRank{1}});
  }
  SupervisorActions after(Duration elapsed, const SupervisorEvent& event) {
    return supervisor.step(event, now += elapsed);
  }
  SupervisorActions happens(const SupervisorEvent& event) { return after(1ms, event); }
  static void check(const SupervisorActions& actions, Duration until_sigterm) {
    const auto& times = std::get<KillEverything>(actions.at(actions.size() - 1)).times;
    CHECK(times.until_sigterm == until_sigterm);
    CHECK(times.until_sigkill == kCleanUp.until_sigkill);
  }
  static void check_now(const SupervisorActions& actions) {
    const auto& times = std::get<KillEverything>(actions.at(actions.size() - 1)).times;
    CHECK(times.until_sigterm == 0s);
    CHECK(times.until_sigkill == 0s);
  }
  SupervisorActions succeed() {
    happens(WorkerEnded{LocalRank{1}, kSuccess});
    return happens(WorkerEnded{LocalRank{0}, kSuccess});
  }
};

TEST_CASE_METHOD(LeftoverTest, "supervisor: what an attempt leaves has time to end",
                 "[unit][agent]") {
  SECTION("--leftover-timeout after success") {
    check(succeed(), 47s);
    CHECK(std::get<ReportEnd>(happens(EverythingGone{}).at(0)).succeeded);
  }
  SECTION("a little time before a restart") {
    happens(WorkerEnded{LocalRank{0}, kFailure});
    check(happens(WorkerEnded{LocalRank{1}, kSuccess}), 2s);
    CHECK(std::holds_alternative<JoinRendezvous>(happens(EverythingGone{}).at(0)));
  }
  SECTION("a little time after a stop") {
    happens(SignalArrived{kStop});
    happens(WorkerEnded{LocalRank{0}, kSuccess});
    check(happens(WorkerEnded{LocalRank{1}, kSuccess}), 2s);
  }
  SECTION("a little time if workers did not end in time") {
    happens(SignalArrived{kStop});
    check(after(20s, TimePassed{}), 2s);
  }
  SECTION("none after a second signal") {
    happens(SignalArrived{kStop});
    check_now(happens(SignalArrived{kStop}));
  }
  SECTION("signals shorten it") {
    succeed();
    check(happens(SignalArrived{kStop}), 2s);
    check_now(happens(SignalArrived{kStop}));
    const SupervisorActions actions = happens(EverythingGone{});
    CHECK(std::get<ReportEnd>(actions.at(0)).succeeded);
    CHECK(std::get<Finish>(actions.at(1)).why == Finish::Why::Signalled);
  }
}

TEST_CASE_METHOD(LeftoverTest, "supervisor: --leftover-timeout bounds every such time",
                 "[unit][agent]") {
  supervisor = Supervisor({.local_world_size = 2, .leftover_timeout = 0s});
  run();
  happens(WorkerEnded{LocalRank{0}, kFailure});
  check(happens(WorkerEnded{LocalRank{1}, kFailure}), 0s);
}

TEST_CASE_METHOD(LeftoverTest,
                 "supervisor: a node that has succeeded keeps its success while leftovers end",
                 "[unit][agent]") {
  succeed();
  SECTION("if the job fails elsewhere") {
    CHECK(happens(JobEnded{.succeeded = false, .reason = "node b: lost"}).empty());
    const auto finish = std::get<Finish>(happens(EverythingGone{}).at(0));
    CHECK(finish.why == Finish::Why::Succeeded);
    CHECK(finish.reason == "node b: lost");
  }
  SECTION("if a restart is ordered") {
    CHECK(happens(RestartOrdered{}).empty());
    CHECK(std::get<ReportEnd>(happens(EverythingGone{}).at(0)).succeeded);
  }
}

}  // namespace
}  // namespace muster
