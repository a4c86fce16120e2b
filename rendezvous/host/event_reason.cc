#include "rendezvous/host/event_reason.h"

#include <string>
#include <variant>

#include "base/cut_text.h"
#include "rendezvous/rounds/limits.h"

namespace muster {
namespace {

void cut(std::string& reason) {
  if (reason.size() <= kMaxSharedReasonBytes) return;
  cut_text(reason, kMaxSharedReasonBytes);
  reason.shrink_to_fit();
}

}  // namespace

void cut_reason(NativeRequest& request) {
  if (auto* failed = std::get_if<WorkersFailed>(&request))
    cut(failed->what);
  else if (auto* restart = std::get_if<RestartRequested>(&request))
    cut(restart->what);
  else if (auto* finished = std::get_if<NodeFinished>(&request))
    cut(finished->what);
  else if (auto* resumed = std::get_if<NodeResumed>(&request))
    cut(resumed->failure);
}

void add_facts(NativeRequest& request, const EventFacts& facts) {
  if (auto* join = std::get_if<NodeJoined>(&request)) {
    join->resumes = facts.resumes;
    join->takes_notices = facts.takes_notices;
  } else if (auto* resumed = std::get_if<NodeResumed>(&request)) {
    resumed->join.takes_notices = facts.takes_notices;
  } else if (auto* notified = std::get_if<NodeNotified>(&request)) {
    notified->deadline_ms = facts.wall_ms + notified->left / std::chrono::milliseconds(1);
  }
}

}  // namespace muster
