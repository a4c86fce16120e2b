#include "agent/core/job_outcome.h"

#include <utility>

#include "rendezvous/rounds/restart_ledger.h"

namespace muster {
namespace {

using LogLevel = JobOutcome::LogLevel;

JobOutcome succeeded(const std::string& reason) {
  JobOutcome outcome{.succeeded = true, .exit_code = 0};
  if (reason.empty()) return outcome;
  outcome.log_level = LogLevel::Warning;
  outcome.text = "the workers of this node have succeeded, but the job has not: " + reason;
  return outcome;
}

JobOutcome worker_failed(const std::string& reason) {
  const std::string text = reason.empty() ? "a worker failed" : reason;
  return {.log_level = reason.empty() ? LogLevel::Nothing : LogLevel::Error,
          .text = reason,
          .reports_failure = true,
          .cause_without_failure = EndCause{"worker_failed", "RuntimeError", text}};
}

JobOutcome failed(EndCause cause) {
  return {.log_level = LogLevel::Error, .text = cause.text, .cause = std::move(cause)};
}

// A scheduler that requeues jobs by their exit status, such as Slurm with --requeue or a Kubernetes
// pod failure policy, can tell this end from a failure: EX_TEMPFAIL of sysexits.h.
constexpr int kPreemptedExitCode = 75;

// A scheduler should not start the job again as it is: EX_SOFTWARE of sysexits.h.
constexpr int kHopelessExitCode = 70;

JobOutcome preempted(const std::string& reason, const OutcomeFacts& facts) {
  EndCause cause{"preempted", "RuntimeError", "the job was stopped because of a notice: " + reason};
  return {.log_level = LogLevel::Warning,
          .text = cause.text,
          .cause = cause,
          .exit_code = facts.propagate_exit_code ? kPreemptedExitCode : 1};
}

JobOutcome signalled(const Finish& finish, const OutcomeFacts& facts) {
  if (facts.logs_full)
    return {.cause = missing_resource(*facts.logs_full)};  // Logged when it happened.
  EndCause cause{"signalled", facts.is_interrupt ? "KeyboardInterrupt" : "SignalException",
                 "Process " + std::to_string(facts.launcher_pid) +
                     " got signal: " + std::to_string(finish.signal)};
  if (!finish.started) return {.cause = std::move(cause), .signal = finish.signal};
  if (facts.is_interrupt)
    return {.cause = std::move(cause), .last_line = "KeyboardInterrupt", .signal = finish.signal};
  const std::string last_line =
      "torch.distributed.elastic.multiprocessing.api." + cause.line();  // Scripts look for it.
  return {.cause = std::move(cause),
          .last_line = last_line,
          .exit_code = facts.propagate_exit_code ? 128 + finish.signal : 1};
}

JobOutcome outcome_of(const Finish& finish, const OutcomeFacts& facts) {
  switch (finish.why) {
    case Finish::Why::Succeeded:
      return succeeded(finish.reason);
    case Finish::Why::WorkerFailed:
      return worker_failed(finish.reason);
    case Finish::Why::StartFailed:
      return failed(missing_resource(finish.reason));
    case Finish::Why::RendezvousFailed:
      return failed({"rendezvous_failed", "RendezvousError", finish.reason});
    case Finish::Why::JobFailed:
      return failed({"job_failed", "RuntimeError", "the job has failed: " + finish.reason});
    case Finish::Why::Preempted:
      return preempted(finish.reason, facts);
    case Finish::Why::Signalled:
      return signalled(finish, facts);
  }
  return {};
}

}  // namespace

JobOutcome job_outcome(const Finish& finish, const OutcomeFacts& facts) {
  JobOutcome outcome = outcome_of(finish, facts);
  if (outcome.succeeded) return outcome;
  outcome.advice = no_progress_text(finish.without_progress);
  if (!finish.hopeless || !facts.propagate_exit_code) return outcome;
  if (finish.why == Finish::Why::JobFailed) outcome.exit_code = kHopelessExitCode;
  if (finish.why == Finish::Why::WorkerFailed) outcome.exit_code_of_job = kHopelessExitCode;
  return outcome;
}

}  // namespace muster
