#include "agent/core/end_cause.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

using Why = Finish::Why;

TEST_CASE("end_cause: a worker's failure and success are none", "[unit][agent]") {
  CHECK_FALSE(cause_of({.why = Why::Succeeded}, 7).has_value());
  CHECK_FALSE(cause_of({.why = Why::WorkerFailed}, 7).has_value());
}

TEST_CASE("end_cause: the line is an exception of torchrun's", "[unit][agent]") {
  CHECK(cause_of({.why = Why::Signalled, .signal = 15}, 7)->line() ==
        "SignalException: Process 7 got signal: 15");
  CHECK(cause_of({.why = Why::StartFailed, .reason = "no such program"}, 7)->line() ==
        "OSError: no such program");
  CHECK(cause_of({.why = Why::RendezvousFailed, .reason = "timed out"}, 7)->line() ==
        "RendezvousError: timed out");
  CHECK(cause_of({.why = Why::JobFailed, .reason = "node b left"}, 7)->line() ==
        "RuntimeError: the job has failed: node b left");
  CHECK(refusal("--nproc-per-node is 'x'").line() == "ValueError: --nproc-per-node is 'x'");
}

TEST_CASE("end_cause: each kind has a name of its own", "[unit][agent]") {
  CHECK(cause_of({.why = Why::Signalled}, 7)->kind == "signalled");
  CHECK(cause_of({.why = Why::StartFailed}, 7)->kind == "start_failed");
  CHECK(cause_of({.why = Why::RendezvousFailed}, 7)->kind == "rendezvous_failed");
  CHECK(cause_of({.why = Why::JobFailed}, 7)->kind == "job_failed");
  CHECK(refusal("x").kind == "refused");
}

}  // namespace
}  // namespace muster
