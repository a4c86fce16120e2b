#include "agent/core/supervisor.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {
using namespace std::chrono_literals;

constexpr WorkerExit kGood{};
constexpr WorkerExit kBad{.status = 3};
constexpr int kTerm = 15;
constexpr int kInterrupt = 2;

struct SupervisorTest {
  Supervisor supervisor{
      SupervisorSettings{.local_world_size = 2, .max_restarts = 1, .stop_timeout = 30s}};
  Instant now{};

  SupervisorActions after(Duration elapsed, const SupervisorEvent& event) {
    return supervisor.step(event, now += elapsed);
  }
  SupervisorActions happens(const SupervisorEvent& event) { return after(1ms, event); }
  void run() { start_both(); }
  void start_both() {
    happens(RendezvousCompleted{});
    happens(WorkerStarted{LocalRank{0}});
    happens(WorkerStarted{LocalRank{1}});
    REQUIRE(supervisor.state() == Supervisor::State::Running);
  }
  /// No process is alive any more: the end is reported to the other nodes, and answered.
  Finish end(bool succeeded, const EverythingGone& gone = {}) {
    const SupervisorActions told = happens(gone);
    REQUIRE(told.size() == 1);
    CHECK(std::get<ReportEnd>(told[0]).succeeded == succeeded);
    const SupervisorActions actions = happens(JobEnded{.succeeded = succeeded, .reason = ""});
    REQUIRE(actions.size() == 1);
    CHECK(supervisor.finished());
    return std::get<Finish>(actions[0]);
  }
};

template <typename Action>
const Action& only(const SupervisorActions& actions) {
  REQUIRE(actions.size() == 1);
  REQUIRE(std::holds_alternative<Action>(actions[0]));
  return std::get<Action>(actions[0]);
}

template <typename Action>
const Action& last(const SupervisorActions& actions) {
  REQUIRE_FALSE(actions.empty());
  REQUIRE(std::holds_alternative<Action>(actions.back()));
  return std::get<Action>(actions.back());
}

TEST_CASE_METHOD(SupervisorTest, "supervisor: workers that all end well are a success",
                 "[unit][agent]") {
  CHECK(only<StartWorkers>(happens(RendezvousCompleted{})).restart_count == 0);
  CHECK(happens(WorkerStarted{LocalRank{0}}).empty());
  CHECK(happens(WorkerStarted{LocalRank{1}}).empty());
  CHECK(happens(WorkerEnded{LocalRank{1}, kGood}).empty());
  only<KillEverything>(happens(WorkerEnded{LocalRank{0}, kGood}));
  CHECK(end(true).why == Finish::Why::Succeeded);
}

// --log-on-full=fail
TEST_CASE_METHOD(SupervisorTest,
                 "supervisor: a signal after a stop by muster itself counts as the first one",
                 "[unit][agent]") {
  run();
  CHECK(last<SignalWorkers>(happens(SignalArrived{.number = kTerm, .is_own = true})).number ==
        kTerm);
  CHECK(last<SignalWorkers>(happens(SignalArrived{kInterrupt})).number == kInterrupt);
  last<KillEverything>(happens(SignalArrived{kInterrupt}));
}

TEST_CASE_METHOD(SupervisorTest, "supervisor: a failure stops the others and costs a restart",
                 "[unit][agent]") {
  run();
  const SupervisorActions actions = happens(WorkerEnded{LocalRank{1}, kBad});
  REQUIRE(actions.size() == 2);
  const auto& failure = std::get<AnnounceFailure>(actions[0]);
  CHECK(failure.rank == LocalRank{1});
  CHECK(failure.exit.status == 3);
  CHECK(failure.restarts_left == 1);
  CHECK(std::get<SignalWorkers>(actions[1]).number == kTerm);

  only<KillEverything>(happens(WorkerEnded{LocalRank{0}, {.killed = true, .status = kTerm}}));
  only<JoinRendezvous>(happens(EverythingGone{}));
  CHECK(only<StartWorkers>(happens(RendezvousCompleted{})).restart_count == 1);
}

TEST_CASE_METHOD(SupervisorTest, "supervisor: a failure with no restart left ends the job",
                 "[unit][agent]") {
  run();
  happens(WorkerEnded{LocalRank{1}, kBad});
  happens(WorkerEnded{LocalRank{0}, kBad});
  happens(EverythingGone{});
  start_both();
  last<SignalWorkers>(happens(WorkerEnded{LocalRank{0}, kBad}));
  only<KillEverything>(happens(WorkerEnded{LocalRank{1}, kBad}));
  CHECK(end(false).why == Finish::Why::WorkerFailed);
}

TEST_CASE_METHOD(SupervisorTest, "supervisor: workers that do not end in time are killed",
                 "[unit][agent]") {
  run();
  happens(WorkerEnded{LocalRank{1}, kBad});
  REQUIRE(supervisor.next_deadline() == now + 30s);
  CHECK(after(29s, TimePassed{}).empty());
  only<KillEverything>(after(1s, TimePassed{}));
  CHECK_FALSE(supervisor.next_deadline());
}

TEST_CASE_METHOD(SupervisorTest,
                 "supervisor: a pause of the machine does not use up a worker's time to end",
                 "[unit][agent]") {
  run();
  SECTION("after a failure, in the shutdown timeout") {
    happens(WorkerEnded{LocalRank{1}, kBad});
    CHECK(after(1h, TimePassed{}).empty());  // The worker stood still as well.
    REQUIRE(supervisor.next_deadline() == now + 30s);
    only<KillEverything>(after(30s, TimePassed{}));
  }
  SECTION("after SIGABRT to a hanging worker") {
    happens(WorkerHung{LocalRank{0}});
    CHECK(after(1h, TimePassed{}).empty());
    REQUIRE(supervisor.next_deadline() == now + 10s);
    CHECK(only<EndWorker>(after(10s, TimePassed{})).number == 9);
  }
  SECTION("a timer that is 1 s late is no pause") {
    happens(WorkerEnded{LocalRank{1}, kBad});
    only<KillEverything>(after(31s, TimePassed{}));
  }
}

TEST_CASE_METHOD(SupervisorTest, "supervisor: a stop does not wait for a start that hangs",
                 "[unit][agent]") {
  happens(RendezvousCompleted{});
  happens(WorkerStarted{LocalRank{0}});
  SECTION("after a failure") {
    const SupervisorActions actions = happens(WorkerEnded{LocalRank{0}, kBad});
    REQUIRE(actions.size() == 2);
    CHECK(std::holds_alternative<AnnounceFailure>(actions[0]));
    CHECK(std::holds_alternative<SignalWorkers>(actions[1]));
  }
  SECTION("when the job has failed elsewhere") {
    only<SignalWorkers>(happens(JobEnded{.succeeded = false, .reason = "b failed"}));
    CHECK(happens(WorkerEnded{LocalRank{0}, kBad}).empty());
  }
  SECTION("when a restart is ordered") {
    only<SignalWorkers>(happens(RestartOrdered{}));
    CHECK(happens(WorkerEnded{LocalRank{0}, kBad}).empty());
  }
  SECTION("but success waits for it") {
    CHECK(happens(WorkerEnded{LocalRank{0}, kGood}).empty());
    CHECK(happens(WorkerStarted{LocalRank{1}}).empty());
    only<KillEverything>(happens(WorkerEnded{LocalRank{1}, kGood}));
    return;
  }
  only<KillEverything>(after(30s, TimePassed{}));
}

TEST_CASE_METHOD(SupervisorTest, "supervisor: a command that cannot be started is not tried again",
                 "[unit][agent]") {
  happens(RendezvousCompleted{});
  only<SignalWorkers>(happens(WorkerStartFailed{LocalRank{0}, "no such file"}));
  CHECK(happens(WorkerStarted{LocalRank{1}}).empty());
  only<KillEverything>(happens(WorkerEnded{LocalRank{1}, {.killed = true, .status = kTerm}}));
  const Finish finish = end(false);
  CHECK(finish.why == Finish::Why::StartFailed);
  CHECK(finish.reason == "no such file");
}

TEST_CASE_METHOD(SupervisorTest, "supervisor: the first signal is passed on, the second kills",
                 "[unit][agent]") {
  run();
  const SupervisorActions first = happens(SignalArrived{kInterrupt});
  REQUIRE(first.size() == 2);
  CHECK(std::holds_alternative<LeaveRendezvous>(first[0]));
  CHECK(std::get<SignalWorkers>(first[1]).number == kInterrupt);
  only<KillEverything>(happens(SignalArrived{kInterrupt}));
  const SupervisorActions actions = happens(EverythingGone{});
  CHECK(only<Finish>(actions).why == Finish::Why::Signalled);
  CHECK(only<Finish>(actions).signal == kInterrupt);
  CHECK(only<Finish>(actions).started);
}

TEST_CASE_METHOD(SupervisorTest, "supervisor: a signal before the first start ends the job at once",
                 "[unit][agent]") {
  const SupervisorActions actions = happens(SignalArrived{kTerm});
  CHECK(last<Finish>(actions).why == Finish::Why::Signalled);
  CHECK_FALSE(last<Finish>(actions).started);
}

TEST_CASE_METHOD(SupervisorTest, "supervisor: a signal during a restart's stop cancels the restart",
                 "[unit][agent]") {
  run();
  happens(WorkerEnded{LocalRank{1}, kBad});
  last<SignalWorkers>(happens(SignalArrived{kTerm}));
  happens(WorkerEnded{LocalRank{0}, kGood});
  CHECK(only<Finish>(happens(EverythingGone{})).why == Finish::Why::Signalled);
}

TEST_CASE_METHOD(SupervisorTest,
                 "supervisor: a signal while the last processes end stops the wait for other nodes",
                 "[unit][agent]") {
  run();
  happens(WorkerEnded{LocalRank{0}, kGood});
  happens(WorkerEnded{LocalRank{1}, kGood});
  only<KillEverything>(happens(SignalArrived{kTerm}));  // It shortens the leftovers' time.
  const SupervisorActions actions = happens(EverythingGone{});
  REQUIRE(actions.size() == 2);
  CHECK(std::get<ReportEnd>(actions[0]).succeeded);  // The other nodes continue.
  CHECK(std::get<Finish>(actions[1]).why == Finish::Why::Signalled);
  CHECK(std::get<Finish>(actions[1]).started);
  CHECK(supervisor.finished());
}

TEST_CASE_METHOD(SupervisorTest, "supervisor: no restart beside a process that cannot be killed",
                 "[unit][agent]") {
  run();
  happens(WorkerEnded{LocalRank{0}, kBad});
  happens(WorkerEnded{LocalRank{1}, kBad});
  const Finish finish = end(false, {.complete = false});
  CHECK(finish.why == Finish::Why::WorkerFailed);
  CHECK_FALSE(finish.reason.empty());
}

TEST_CASE_METHOD(SupervisorTest,
                 "supervisor: a node that cannot stop its workers for a restart has not succeeded",
                 "[unit][agent]") {
  run();
  happens(RestartOrdered{});
  happens(WorkerEnded{LocalRank{0}, kBad});
  only<KillEverything>(happens(WorkerEnded{LocalRank{1}, kBad}));
  const Finish finish = end(false, {.complete = false});
  CHECK(finish.why == Finish::Why::WorkerFailed);
  CHECK_FALSE(finish.reason.empty());
}

TEST_CASE_METHOD(SupervisorTest,
                 "supervisor: a process that is left behind does not change a success",
                 "[unit][agent]") {
  run();
  happens(WorkerEnded{LocalRank{0}, kGood});
  happens(WorkerEnded{LocalRank{1}, kGood});
  const Finish finish = end(true, {.complete = false});
  CHECK(finish.why == Finish::Why::Succeeded);
  CHECK(finish.reason.empty());
}

// --log-on-full=fail
TEST_CASE_METHOD(SupervisorTest, "supervisor: the other nodes learn why muster stops the job",
                 "[unit][agent]") {
  run();
  only<SignalWorkers>(
      happens(SignalArrived{.number = kTerm, .is_own = true, .reason = "a.log: no space"}));
  happens(WorkerEnded{LocalRank{0}, kBad});
  only<KillEverything>(happens(WorkerEnded{LocalRank{1}, kBad}));
  const auto report = only<ReportEnd>(happens(EverythingGone{}));
  CHECK_FALSE(report.succeeded);
  CHECK(report.reason == "a.log: no space");
  const JobEnded ended{.succeeded = false, .reason = "a.log: no space"};
  CHECK(only<Finish>(happens(ended)).why == Finish::Why::Signalled);
}

TEST_CASE_METHOD(SupervisorTest, "supervisor: a rendezvous that fails ends the job with its reason",
                 "[unit][agent]") {
  const SupervisorActions actions = happens(RendezvousFailed{"timed out"});
  CHECK(only<Finish>(actions).why == Finish::Why::RendezvousFailed);
  CHECK(only<Finish>(actions).reason == "timed out");
  CHECK(happens(SignalArrived{kTerm}).empty());  // The job has ended.
}

TEST_CASE_METHOD(SupervisorTest, "supervisor: a worker that hangs is ended, and that is a failure",
                 "[unit][agent]") {
  run();
  const SupervisorActions abort = happens(WorkerHung{LocalRank{1}});
  CHECK(only<EndWorker>(abort).rank == LocalRank{1});
  CHECK(only<EndWorker>(abort).number == 6);
  CHECK(happens(WorkerHung{LocalRank{0}}).empty());  // Only one worker at a time.
  const SupervisorActions actions =
      happens(WorkerEnded{LocalRank{1}, {.killed = true, .status = 6}});
  REQUIRE(actions.size() == 2);
  CHECK(std::get<AnnounceFailure>(actions[0]).rank == LocalRank{1});
  CHECK(std::get<SignalWorkers>(actions[1]).number == kTerm);
  happens(WorkerEnded{LocalRank{0}, {.killed = true, .status = kTerm}});
  only<JoinRendezvous>(happens(EverythingGone{}));  // As after every failure.
}

TEST_CASE_METHOD(SupervisorTest, "supervisor: a hanging worker that survives SIGABRT is killed",
                 "[unit][agent]") {
  run();
  happens(WorkerHung{LocalRank{0}});
  REQUIRE(supervisor.next_deadline() == now + 10s);
  CHECK(after(9s, TimePassed{}).empty());
  CHECK(only<EndWorker>(after(1s, TimePassed{})).number == 9);
  SECTION("the kill makes it a failure like any other") {
    happens(WorkerEnded{LocalRank{0}, {.killed = true, .status = 9}});
    CHECK(supervisor.state() == Supervisor::State::Stopping);
  }
  SECTION("if the kill does not help either, the job ends") {
    only<KillEverything>(after(10s, TimePassed{}));
    const Finish finish = end(false, {.complete = false});
    CHECK(finish.why == Finish::Why::WorkerFailed);
    CHECK_THAT(finish.reason, Catch::Contains("hangs"));
  }
}

TEST_CASE_METHOD(SupervisorTest,
                 "supervisor: a report of a hang has no effect when the worker has ended",
                 "[unit][agent]") {
  run();
  happens(WorkerEnded{LocalRank{0}, kGood});
  CHECK(happens(WorkerHung{LocalRank{0}}).empty());
  happens(WorkerHung{LocalRank{1}});
  CHECK(supervisor.next_deadline());
  only<KillEverything>(happens(WorkerEnded{LocalRank{1}, kGood}));  // It succeeded in the end.
  CHECK_FALSE(supervisor.next_deadline());
}

TEST_CASE_METHOD(
    SupervisorTest,
    "supervisor: a restart that the rendezvous orders costs none of this node's restarts",
    "[unit][agent]") {
  SECTION("while the workers run") {
    run();
    CHECK(only<SignalWorkers>(happens(RestartOrdered{})).number == kTerm);
    CHECK(happens(RestartOrdered{}).empty());
    happens(WorkerEnded{LocalRank{0}, kBad});  // A victim.
  }
  SECTION("while they start") {
    happens(RendezvousCompleted{});
    happens(WorkerStarted{LocalRank{0}});
    only<SignalWorkers>(happens(RestartOrdered{}));
    CHECK(happens(WorkerStarted{LocalRank{1}}).empty());
    happens(WorkerEnded{LocalRank{0}, kGood});
  }
  only<KillEverything>(happens(WorkerEnded{LocalRank{1}, kGood}));
  only<JoinRendezvous>(happens(EverythingGone{}));
  CHECK(only<StartWorkers>(happens(RendezvousCompleted{})).restart_count == 0);
}

TEST_CASE_METHOD(SupervisorTest,
                 "supervisor: the job's count of restarts decides where there is one",
                 "[unit][agent]") {
  // More than max_restarts of this node: the other nodes' --max-restarts was checked at their join.
  CHECK(only<StartWorkers>(happens(RendezvousCompleted{.job_restarts = 7})).restart_count == 7);
  happens(WorkerStarted{LocalRank{0}});
  happens(WorkerStarted{LocalRank{1}});
  last<SignalWorkers>(happens(WorkerEnded{LocalRank{1}, kBad}));
  SECTION("the job goes on") {
    only<KillEverything>(happens(WorkerEnded{LocalRank{0}, kBad}));
    only<JoinRendezvous>(happens(EverythingGone{}));
    CHECK(only<StartWorkers>(happens(RendezvousCompleted{.job_restarts = 8})).restart_count == 8);
  }
  SECTION("the job is over, and this node's failure is reported") {
    CHECK(happens(JobEnded{.succeeded = false, .reason = "node a failed"}).empty());
    only<KillEverything>(happens(WorkerEnded{LocalRank{0}, kBad}));
    CHECK(only<Finish>(happens(EverythingGone{})).why == Finish::Why::WorkerFailed);
  }
  SECTION("the job is over, which the node learns after its workers' end") {
    only<KillEverything>(happens(WorkerEnded{LocalRank{0}, kBad}));
    only<JoinRendezvous>(happens(EverythingGone{}));
    const SupervisorActions actions = happens(JobEnded{.succeeded = false, .reason = "b failed"});
    CHECK(only<Finish>(actions).why == Finish::Why::WorkerFailed);
  }
}

TEST_CASE_METHOD(SupervisorTest, "supervisor: a job that failed on another node ends on this node",
                 "[unit][agent]") {
  const JobEnded failed{.succeeded = false, .reason = "node b: rank 3 exited with 1"};
  SECTION("while the workers run") {
    run();
    only<SignalWorkers>(happens(failed));
    happens(WorkerEnded{LocalRank{0}, kBad});
    only<KillEverything>(happens(WorkerEnded{LocalRank{1}, kBad}));
    const SupervisorActions actions = happens(EverythingGone{});
    CHECK(only<Finish>(actions).why == Finish::Why::JobFailed);
    CHECK(only<Finish>(actions).reason == failed.reason);
  }
  SECTION("while it waits for a round") {
    CHECK(only<Finish>(happens(failed)).why == Finish::Why::JobFailed);
  }
  SECTION("when its own part is done") {
    run();
    happens(WorkerEnded{LocalRank{0}, kGood});
    happens(WorkerEnded{LocalRank{1}, kGood});
    only<ReportEnd>(happens(EverythingGone{}));
    CHECK(supervisor.state() == Supervisor::State::Leaving);
    const SupervisorActions actions = happens(failed);
    CHECK(only<Finish>(actions).why == Finish::Why::Succeeded);
    CHECK(only<Finish>(actions).reason == failed.reason);
  }
}

TEST_CASE_METHOD(SupervisorTest,
                 "supervisor: a node that never had workers has not succeeded with the job",
                 "[unit][agent]") {
  const JobEnded succeeded{.succeeded = true, .reason = ""};
  SECTION("it may belong to another job") {
    Supervisor strict{SupervisorSettings{.local_world_size = 2, .must_run = true}};
    const Finish finish = only<Finish>(strict.step(succeeded, now));
    CHECK(finish.why == Finish::Why::RendezvousFailed);
    CHECK_THAT(finish.reason, Catch::Contains("never had a place") && Catch::Contains("--rdzv-id"));
  }
  SECTION("a spare has nothing to do if nobody fails") {
    Supervisor spare{SupervisorSettings{.local_world_size = 2}};
    CHECK(only<Finish>(spare.step(succeeded, now)).why == Finish::Why::Succeeded);
  }
  SECTION("a failure of the job is the cause") {
    const Finish finish = only<Finish>(happens(JobEnded{.succeeded = false, .reason = "b failed"}));
    CHECK(finish.why == Finish::Why::JobFailed);
  }
  SECTION("the node has had workers, and waits for a further round") {
    supervisor = Supervisor{SupervisorSettings{.local_world_size = 2, .must_run = true}};
    run();
    only<SignalWorkers>(happens(RestartOrdered{}));
    happens(WorkerEnded{LocalRank{0}, kGood});
    happens(WorkerEnded{LocalRank{1}, kGood});
    happens(EverythingGone{});
    REQUIRE(supervisor.state() == Supervisor::State::Joining);
    CHECK(only<Finish>(happens(succeeded)).why == Finish::Why::Succeeded);
  }
}

TEST_CASE_METHOD(SupervisorTest, "supervisor: no round follows the end of the job",
                 "[unit][agent]") {
  run();
  const JobEnded succeeded{.succeeded = true, .reason = ""};
  SECTION("a restart was ordered, and the others have ended without this node") {
    only<SignalWorkers>(happens(RestartOrdered{}));
    CHECK(happens(succeeded).empty());
    happens(WorkerEnded{LocalRank{0}, kGood});
    only<KillEverything>(happens(WorkerEnded{LocalRank{1}, kGood}));
    CHECK(only<Finish>(happens(EverythingGone{})).why == Finish::Why::Succeeded);
  }
  SECTION("a worker has failed here") {
    last<SignalWorkers>(happens(WorkerEnded{LocalRank{0}, kBad}));
    only<KillEverything>(happens(WorkerEnded{LocalRank{1}, kGood}));
    CHECK(happens(succeeded).empty());
    CHECK(only<Finish>(happens(EverythingGone{})).why == Finish::Why::WorkerFailed);
  }
}

TEST_CASE_METHOD(SupervisorTest,
                 "supervisor: a signal ends the wait for other nodes that are still at work",
                 "[unit][agent]") {
  run();
  happens(WorkerEnded{LocalRank{0}, kGood});
  happens(WorkerEnded{LocalRank{1}, kGood});
  happens(EverythingGone{});
  const SupervisorActions actions = happens(SignalArrived{kTerm});
  CHECK(only<Finish>(actions).why == Finish::Why::Signalled);
  CHECK(only<Finish>(actions).signal == kTerm);
}

TEST_CASE_METHOD(SupervisorTest, "supervisor: a signal does not replace a failure as the cause",
                 "[unit][agent]") {
  run();
  happens(WorkerEnded{LocalRank{0}, kBad});
  happens(WorkerEnded{LocalRank{1}, kGood});
  only<JoinRendezvous>(happens(EverythingGone{}));
  start_both();
  happens(WorkerEnded{LocalRank{0}, kBad});
  happens(WorkerEnded{LocalRank{1}, kGood});
  only<KillEverything>(happens(SignalArrived{kTerm}));
  CHECK_FALSE(only<ReportEnd>(happens(EverythingGone{})).succeeded);
  CHECK(only<Finish>(happens(SignalArrived{kTerm})).why == Finish::Why::WorkerFailed);
}

// --restart-policy
struct RestartPolicyTest : SupervisorTest {
  RestartPolicyTest() { use({.on = true}, 9); }
  void use(RestartPolicy policy, int failures) {
    supervisor = Supervisor(SupervisorSettings{
        .local_world_size = 2, .max_restarts = failures, .restart_policy = policy});
  }
  void attempt(std::optional<std::int64_t> step, bool hung = false) {
    start_both();
    if (step) happens(ProgressMade{step});
    if (hung) happens(WorkerHung{LocalRank{0}});
    happens(WorkerEnded{LocalRank{0}, kBad});
    happens(WorkerEnded{LocalRank{1}, kGood});
  }
  /// After the attempt's end the workers are started again, after this time.
  void restarts_after(Duration wait) {
    CHECK(only<WaitToJoin>(happens(EverythingGone{})).wait == wait);
    REQUIRE(supervisor.next_deadline() == now + wait);
    CHECK(after(wait - 1ns, TimePassed{}).empty());
    only<JoinRendezvous>(after(1ns, TimePassed{}));
    CHECK_FALSE(supervisor.next_deadline());
  }
};

TEST_CASE_METHOD(RestartPolicyTest,
                 "supervisor: the third attempt in a row without progress ends the job",
                 "[unit][agent]") {
  attempt({});
  restarts_after(1s);
  attempt({});
  restarts_after(2s);
  attempt({});
  const Finish finish = end(false);
  CHECK(finish.why == Finish::Why::WorkerFailed);
  CHECK(finish.hopeless);
  CHECK(finish.without_progress == 3);
}

TEST_CASE_METHOD(RestartPolicyTest, "supervisor: a job that gets further each time goes on",
                 "[unit][agent]") {
  for (std::int64_t step = 1; step <= 9; ++step) {
    attempt(step);
    restarts_after(1s);
  }
  attempt(10);
  const Finish finish = end(false);
  CHECK_FALSE(finish.hopeless);
  CHECK(finish.without_progress == 0);
}

TEST_CASE_METHOD(RestartPolicyTest, "supervisor: a hang costs the budget of hangs",
                 "[unit][agent]") {
  use({.on = true, .hangs = 1}, 1);
  attempt(1, true);
  restarts_after(1s);
  attempt(2, false);
  restarts_after(1s);
  CHECK(supervisor.restart_count() == 2);
  attempt(3, true);
  CHECK_FALSE(end(false).hopeless);
}

TEST_CASE_METHOD(RestartPolicyTest, "supervisor: a signal ends the wait before a restart",
                 "[unit][agent]") {
  attempt({});
  only<WaitToJoin>(happens(EverythingGone{}));
  const SupervisorActions actions = happens(SignalArrived{kTerm});
  CHECK(last<Finish>(actions).why == Finish::Why::Signalled);
  CHECK_FALSE(supervisor.next_deadline());
}

TEST_CASE_METHOD(RestartPolicyTest, "supervisor: a wait that is over late ends at once",
                 "[unit][agent]") {
  attempt({});
  only<WaitToJoin>(happens(EverythingGone{}));
  only<JoinRendezvous>(after(1h, TimePassed{}));
}

TEST_CASE_METHOD(
    RestartPolicyTest,
    "supervisor: without --restart-policy restarts follow at once, and the sentence stays",
    "[unit][agent]") {
  use({}, 2);
  for (int i = 0; i < 2; ++i) {
    attempt({});
    only<JoinRendezvous>(happens(EverythingGone{}));
  }
  attempt({});
  const Finish finish = end(false);
  CHECK_FALSE(finish.hopeless);
  CHECK(finish.without_progress == 3);
}

}  // namespace
}  // namespace muster
