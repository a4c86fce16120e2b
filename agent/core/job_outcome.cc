#include "agent/core/job_outcome.h"

#include <utility>

namespace muster {
namespace {

using Say = JobOutcome::Say;

JobOutcome succeeded(const std::string& reason) {
  JobOutcome outcome{.succeeded = true, .exit_code = 0};
  if (reason.empty()) return outcome;
  outcome.say = Say::Warning;
  outcome.text = "the workers of this node have succeeded, but the job has not: " + reason;
  return outcome;
}

JobOutcome failed(EndCause cause) {
  return {.say = Say::Error, .text = cause.text, .cause = std::move(cause)};
}

JobOutcome signalled(const Finish& finish, const OutcomeFacts& facts) {
  if (facts.logs_full) return {.cause = lack(*facts.logs_full)};  // Has been said.
  EndCause cause{"signalled", "SignalException",
                 "Process " + std::to_string(facts.launcher_pid) +
                     " got signal: " + std::to_string(finish.signal)};
  if (!finish.started) return {.cause = std::move(cause), .signal = finish.signal};
  const std::string last_line =
      "torch.distributed.elastic.multiprocessing.api." + cause.line();  // Scripts look for it.
  return {.cause = std::move(cause),
          .last_line = last_line,
          .exit_code = facts.propagate_exit_code ? 128 + finish.signal : 1};
}

}  // namespace

JobOutcome job_outcome(const Finish& finish, const OutcomeFacts& facts) {
  switch (finish.why) {
    case Finish::Why::Succeeded:
      return succeeded(finish.reason);
    case Finish::Why::WorkerFailed:
      return {.say = finish.reason.empty() ? Say::Nothing : Say::Error,
              .text = finish.reason,
              .reports_failure = true};
    case Finish::Why::StartFailed:
      return failed(lack(finish.reason));
    case Finish::Why::RendezvousFailed:
      return failed({"rendezvous_failed", "RendezvousError", finish.reason});
    case Finish::Why::JobFailed:
      return failed({"job_failed", "RuntimeError", "the job has failed: " + finish.reason});
    case Finish::Why::Signalled:
      return signalled(finish, facts);
  }
  return {};
}

}  // namespace muster
