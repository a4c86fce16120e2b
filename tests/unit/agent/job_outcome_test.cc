#include "agent/core/job_outcome.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

using Why = Finish::Why;
using Say = JobOutcome::Say;

TEST_CASE("job_outcome: success is quiet, and exits with 0", "[unit][agent]") {
  const JobOutcome outcome = job_outcome({.why = Why::Succeeded, .started = true}, {});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.succeeded);
  CHECK(outcome.say == Say::Nothing);
  CHECK_FALSE(outcome.reports_failure);
}

TEST_CASE("job_outcome: our workers' success is theirs, whatever others did", "[unit][agent]") {
  const JobOutcome outcome = job_outcome({.why = Why::Succeeded, .reason = "node 1 failed"}, {});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.succeeded);
  CHECK(outcome.say == Say::Warning);
  CHECK_THAT(outcome.text, Catch::EndsWith("node 1 failed"));
}

TEST_CASE("job_outcome: what failed is said, and exits with 1", "[unit][agent]") {
  for (const Why why : {Why::StartFailed, Why::RendezvousFailed, Why::JobFailed}) {
    const JobOutcome outcome =
        job_outcome({.why = why, .reason = "no such thing"}, {.propagate_exit_code = true});
    CHECK(outcome.exit_code == 1);
    CHECK(outcome.signal == 0);
    CHECK_FALSE(outcome.succeeded);
    CHECK_FALSE(outcome.reports_failure);
    CHECK(outcome.say == Say::Error);
    CHECK_THAT(outcome.text, Catch::EndsWith("no such thing"));
  }
}

TEST_CASE("job_outcome: a worker's failure is the report's to tell", "[unit][agent]") {
  const JobOutcome outcome = job_outcome({.why = Why::WorkerFailed, .started = true}, {});
  CHECK(outcome.reports_failure);
  CHECK(outcome.say == Say::Nothing);
  CHECK(job_outcome({.why = Why::WorkerFailed, .reason = "stuck"}, {}).say == Say::Error);
}

TEST_CASE("job_outcome: a signal before the workers is muster's own end", "[unit][agent]") {
  const JobOutcome outcome = job_outcome({.why = Why::Signalled, .signal = 15}, {});
  CHECK(outcome.signal == 15);
  CHECK_FALSE(outcome.succeeded);
}

TEST_CASE("job_outcome: a signal to the workers exits with 1, or as asked for", "[unit][agent]") {
  const Finish finish{.why = Why::Signalled, .signal = 15, .started = true};
  CHECK(job_outcome(finish, {}).exit_code == 1);
  CHECK(job_outcome(finish, {}).signal == 0);
  CHECK(job_outcome(finish, {.propagate_exit_code = true}).exit_code == 128 + 15);
}

TEST_CASE("job_outcome: a disk that is full is a failure, not a signal", "[unit][agent]") {
  const Finish finish{.why = Why::Signalled, .signal = 15, .started = true};
  const JobOutcome outcome =
      job_outcome(finish, {.propagate_exit_code = true, .logs_are_full = true});
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.signal == 0);
}

}  // namespace
}  // namespace muster
