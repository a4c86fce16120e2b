// RunService: messages to nodes that wait for a round, or for other nodes to finish, and to nodes
// that meet a run whose nodes are away.

#include <algorithm>

#include "base/seconds_text.h"
#include "rendezvous/host/run_service.h"

namespace muster {

void RunService::begin_to_wait(Run& run, ConnectionId client, Instant now) {
  const Instant notify_at = now + options_.waiting_interval;
  if (run.waiting.empty()) {
    run.notify_at = std::max(run.notify_at, notify_at);
    run.notify_from.reset();
  }
  run.waiting.try_emplace(client.value, Run::Waiter{notify_at, {}});
}

/// What a job can do that is refused for the sake of nodes that may never come back: after a power
/// cut, or when a job begins again with other settings.
std::string RunService::remedy(const Run& run, Instant now) const {
  const auto deserted = run.rendezvous->deserted_by();
  if (!deserted || has_one_life()) return {};
  std::string text = "; no node of that run is here";
  if (gate_.works()) {
    const Instant since = run.deserted.value_or(std::max(*deserted, now));
    const Duration left = since + options_.forget_after - now;
    text += ": unless one comes back, the run is forgotten " +
            (left > Duration::zero() ? "in " + seconds_text(left) : "now") +
            " (--forget-run-seconds)";
  }
  return text + "; `musterctl stop` ends it at once, and another --rdzv-id makes another run";
}

/// Sends the waiting messages to at most kMaxNotifiedNodes nodes. If there are more nodes, the next
/// part is due at once.
void RunService::notify_waiting(Run& run, Instant now) {
  const auto from = std::exchange(run.notify_from, std::nullopt);
  // Changes between two parts stay pending: the nodes of the earlier parts do not know them.
  if (!from) run.notify_pending = false;
  if (!from) run.notify_again = now + options_.waiting_interval;
  run.notify_at = run.notify_again;
  // Rank 0 usually prepares the store quickly: nodes are told about it only if it takes longer than
  // one interval.
  const bool preparing = run.rendezvous->phase() == Rendezvous::Phase::Preparing;
  if (preparing && !std::exchange(run.was_preparing, true)) return void(run.notify_pending = true);
  run.was_preparing = preparing;
  std::size_t nodes = 0;
  for (auto next = run.waiting.lower_bound(from.value_or(0)); next != run.waiting.end(); ++next) {
    auto& [client, waiter] = *next;
    if (waiter.notify_at > now) {
      run.notify_pending = true;
      run.notify_at = std::min(run.notify_at, waiter.notify_at);
      continue;
    }
    if (nodes++ == kMaxNotifiedNodes) {
      run.notify_again = std::exchange(run.notify_at, now);
      run.notify_from = client;
      return;
    }
    std::string reason = run.rendezvous->reason_for({client});
    if (reason == waiter.last_text) continue;
    waiter.last_text = std::move(reason);
    waiter.notify_at = now + options_.waiting_interval;
    gate_.send(SendNative{{client}, NativeWaiting{waiter.last_text}});
  }
}

}  // namespace muster
