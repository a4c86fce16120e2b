#include "agent/core/job_outcome.h"

#include <string>

#include <catch2/catch.hpp>

namespace muster {
namespace {

using Why = Finish::Why;
using LogLevel = JobOutcome::LogLevel;

TEST_CASE("job_outcome: success is quiet, and exits with 0", "[unit][agent]") {
  const JobOutcome outcome = job_outcome({.why = Why::Succeeded, .started = true}, {});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.succeeded);
  CHECK(outcome.log_level == LogLevel::Nothing);
  CHECK(outcome.last_line.empty());
  CHECK_FALSE(outcome.cause);
  CHECK_FALSE(outcome.reports_failure);
}

TEST_CASE("job_outcome: a node whose workers succeeded ends with 0 even if other nodes failed",
          "[unit][agent]") {
  const JobOutcome outcome = job_outcome({.why = Why::Succeeded, .reason = "node 1 failed"}, {});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.succeeded);
  CHECK(outcome.log_level == LogLevel::Warning);
  CHECK_THAT(outcome.text, Catch::EndsWith("node 1 failed"));
  CHECK_FALSE(outcome.cause);
}

TEST_CASE("job_outcome: a failure is printed and written to files, and the exit code is 1",
          "[unit][agent]") {
  struct Case {
    Why why;
    std::string kind;
    std::string line;
  };
  for (const Case& expected :
       {Case{Why::StartFailed, "start_failed", "OSError: no such thing"},
        Case{Why::RendezvousFailed, "rendezvous_failed", "RendezvousError: no such thing"},
        Case{Why::JobFailed, "job_failed", "RuntimeError: the job has failed: no such thing"}}) {
    const JobOutcome outcome = job_outcome({.why = expected.why, .reason = "no such thing"},
                                           {.propagate_exit_code = true});
    CHECK(outcome.exit_code == 1);
    CHECK(outcome.signal == 0);
    CHECK_FALSE(outcome.succeeded);
    CHECK_FALSE(outcome.reports_failure);
    CHECK(outcome.log_level == LogLevel::Error);
    CHECK(outcome.last_line.empty());
    REQUIRE(outcome.cause);
    CHECK(outcome.cause->kind == expected.kind);
    CHECK(outcome.cause->line() == expected.line);
    CHECK(outcome.text == outcome.cause->text);
  }
}

TEST_CASE("job_outcome: the failure report describes a worker's failure", "[unit][agent]") {
  const JobOutcome outcome = job_outcome({.why = Why::WorkerFailed, .started = true}, {});
  CHECK(outcome.reports_failure);
  CHECK(outcome.log_level == LogLevel::Nothing);
  CHECK_FALSE(outcome.cause);
  CHECK(outcome.last_line.empty());
  const JobOutcome stuck = job_outcome({.why = Why::WorkerFailed, .reason = "stuck"}, {});
  CHECK(stuck.log_level == LogLevel::Error);
  CHECK(stuck.text == "stuck");
  CHECK_FALSE(stuck.cause);  // The workers' ends name a failure, as a rule.
  REQUIRE(stuck.cause_without_failure);
  CHECK(stuck.cause_without_failure->kind == "worker_failed");
  CHECK(stuck.cause_without_failure->line() == "RuntimeError: stuck");
}

TEST_CASE("job_outcome: after a signal before the first worker, muster ends by that signal",
          "[unit][agent]") {
  const JobOutcome outcome =
      job_outcome({.why = Why::Signalled, .signal = 15}, {.launcher_pid = 7});
  CHECK(outcome.signal == 15);
  CHECK_FALSE(outcome.succeeded);
  CHECK(outcome.log_level == LogLevel::Nothing);
  CHECK(outcome.last_line.empty());
  REQUIRE(outcome.cause);  // The cause is still written to the files.
  CHECK(outcome.cause->kind == "signalled");
  CHECK(outcome.cause->line() == "SignalException: Process 7 got signal: 15");
}

TEST_CASE("job_outcome: a signal to the workers exits with 1, or as asked for", "[unit][agent]") {
  const Finish finish{.why = Why::Signalled, .signal = 15, .started = true};
  const JobOutcome outcome = job_outcome(finish, {.launcher_pid = 7});
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.signal == 0);
  CHECK(outcome.last_line ==
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15");
  REQUIRE(outcome.cause);
  CHECK(outcome.cause->line() == "SignalException: Process 7 got signal: 15");
  CHECK(job_outcome(finish, {.propagate_exit_code = true}).exit_code == 128 + 15);
}

TEST_CASE("job_outcome: a job that was stopped for a notice exits with 1, or with 75 if asked for",
          "[unit][agent]") {
  const Finish finish{.why = Why::Preempted, .started = true, .reason = "SIGUSR1"};
  const JobOutcome outcome = job_outcome(finish, {});
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.signal == 0);
  CHECK_FALSE(outcome.succeeded);
  CHECK_FALSE(outcome.reports_failure);
  CHECK(outcome.log_level == LogLevel::Warning);
  CHECK(outcome.last_line.empty());
  REQUIRE(outcome.cause);
  CHECK(outcome.cause->kind == "preempted");
  CHECK(outcome.text == "the job was stopped because of a notice: SIGUSR1");
  CHECK(outcome.cause->line() == "RuntimeError: " + outcome.text);
  CHECK(job_outcome(finish, {.propagate_exit_code = true}).exit_code == 75);
}

TEST_CASE("job_outcome: a disk that is full is a failure, not a signal", "[unit][agent]") {
  const OutcomeFacts facts{.propagate_exit_code = true, .logs_full = "no room on /logs"};
  const JobOutcome outcome =
      job_outcome({.why = Why::Signalled, .signal = 15, .started = true}, facts);
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.signal == 0);
  CHECK(outcome.last_line.empty());
  CHECK(outcome.log_level == LogLevel::Nothing);  // It was logged when it happened.
  REQUIRE(outcome.cause);
  CHECK(outcome.cause->line() == "OSError: no room on /logs");
}

TEST_CASE("job_outcome: an outcome that was decided before the disk was full does not change",
          "[unit][agent]") {
  const OutcomeFacts facts{.logs_full = "no room on /logs"};
  CHECK(job_outcome({.why = Why::WorkerFailed, .started = true}, facts).reports_failure);
  CHECK_FALSE(job_outcome({.why = Why::WorkerFailed, .started = true}, facts).cause);
  CHECK(job_outcome({.why = Why::Succeeded, .started = true}, facts).exit_code == 0);
  CHECK_FALSE(job_outcome({.why = Why::Succeeded, .started = true}, facts).cause);
}

TEST_CASE("job_outcome: a job that gets no further exits with 1, or with 70 if asked for",
          "[unit][agent]") {
  for (const Why why : {Why::WorkerFailed, Why::JobFailed}) {
    Finish finish{.why = why, .started = true, .reason = "", .without_progress = 3};
    const JobOutcome without_policy = job_outcome(finish, {.propagate_exit_code = true});
    CHECK_THAT(without_policy.advice,
               Catch::Contains("the last 3 attempts ended before any progress"));
    CHECK(without_policy.exit_code == 1);
    CHECK_FALSE(without_policy.exit_code_of_job);
    finish.hopeless = true;
    const JobOutcome plain = job_outcome(finish, {});
    CHECK(plain.exit_code == 1);
    CHECK_FALSE(plain.exit_code_of_job);
    const JobOutcome asked = job_outcome(finish, {.propagate_exit_code = true});
    CHECK((why == Why::JobFailed ? asked.exit_code : asked.exit_code_of_job) == 70);
  }
  CHECK(job_outcome({.why = Why::WorkerFailed, .without_progress = 2}, {}).advice.empty());
}

}  // namespace
}  // namespace muster
