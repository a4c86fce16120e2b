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

}  // namespace muster
