#include "agent/core/end_cause.h"

#include <utility>

namespace muster {

std::optional<EndCause> cause_of(const Finish& finish, int pid) {
  switch (finish.why) {
    case Finish::Why::Succeeded:
    case Finish::Why::WorkerFailed:
      return std::nullopt;
    case Finish::Why::StartFailed:
      return EndCause{"start_failed", "OSError", finish.reason};
    case Finish::Why::RendezvousFailed:
      return EndCause{"rendezvous_failed", "RendezvousError", finish.reason};
    case Finish::Why::JobFailed:
      return EndCause{"job_failed", "RuntimeError", "the job has failed: " + finish.reason};
    case Finish::Why::Signalled:
      return EndCause{
          "signalled", "SignalException",
          "Process " + std::to_string(pid) + " got signal: " + std::to_string(finish.signal)};
  }
  return std::nullopt;
}

EndCause refusal(std::string text) {
  return {"refused", "ValueError", std::move(text)};
}

EndCause lack(std::string text) {
  return {"start_failed", "OSError", std::move(text)};
}

}  // namespace muster
