#include "rendezvous/service/event_reason.h"

#include <string>
#include <string_view>
#include <variant>

#include "rendezvous/core/limits.h"
#include "rendezvous/wire/printable_text.h"

namespace muster {
namespace {

void cut(std::string& reason) {
  constexpr std::string_view kMark = "...";
  if (reason.size() <= kMaxSharedReasonBytes) return;
  reason.resize(kMaxSharedReasonBytes - kMark.size());
  reason.resize(reason.size() - cut_character_bytes(reason));
  reason += kMark;
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
