// RunService: messages to nodes that wait for a round, or for other nodes to finish.

#include <algorithm>

#include "rendezvous/service/run_service.h"

namespace muster {

void RunService::begin_to_wait(Run& run, ConnectionId client, Instant now) {
  const Instant notify_at = now + options_.waiting_interval;
  if (run.waiting.empty()) run.notify_at = std::max(run.notify_at, notify_at);
  run.waiting.try_emplace(client.value, Run::Waiter{notify_at, {}});
}

void RunService::notify_waiting(Run& run, Instant now) {
  run.notify_pending = false;
  run.notify_at = now + options_.waiting_interval;
  // Rank 0 usually prepares the store quickly: nodes are told about it only if it takes longer than
  // one interval.
  const bool preparing = run.rendezvous->phase() == Rendezvous::Phase::Preparing;
  if (preparing && !std::exchange(run.was_preparing, true)) return void(run.notify_pending = true);
  run.was_preparing = preparing;
  for (auto& [client, waiter] : run.waiting) {
    if (waiter.notify_at > now) {
      run.notify_pending = true;
      run.notify_at = std::min(run.notify_at, waiter.notify_at);
      continue;
    }
    std::string reason = run.rendezvous->reason_for({client});
    if (reason == waiter.last_text) continue;
    waiter.last_text = std::move(reason);
    waiter.notify_at = now + options_.waiting_interval;
    effects_.emplace_back(SendNative{{client}, NativeWaiting{waiter.last_text}});
  }
}

}  // namespace muster
