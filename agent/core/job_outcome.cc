#include "agent/core/job_outcome.h"

namespace muster {
namespace {

using Say = JobOutcome::Say;

JobOutcome signalled(const Finish& finish, const OutcomeFacts& facts) {
  if (facts.logs_are_full) return {};
  if (!finish.started) return {.signal = finish.signal};
  return {.exit_code = facts.propagate_exit_code ? 128 + finish.signal : 1};
}

}  // namespace

JobOutcome job_outcome(const Finish& finish, const OutcomeFacts& facts) {
  const Say say = finish.reason.empty() ? Say::Nothing : Say::Error;
  switch (finish.why) {
    case Finish::Why::Succeeded:
      if (finish.reason.empty()) return {.succeeded = true, .exit_code = 0};
      return {
          .say = Say::Warning,
          .text = "the workers of this node have succeeded, but the job has not: " + finish.reason,
          .succeeded = true,
          .exit_code = 0};
    case Finish::Why::JobFailed:
      return {.say = Say::Error, .text = "the job has failed: " + finish.reason};
    case Finish::Why::StartFailed:
    case Finish::Why::RendezvousFailed:
      return {.say = Say::Error, .text = finish.reason};
    case Finish::Why::Signalled:
      return signalled(finish, facts);
    case Finish::Why::WorkerFailed:
      return {.say = say, .text = finish.reason, .reports_failure = true};
  }
  return {};
}

}  // namespace muster
