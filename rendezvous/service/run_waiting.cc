// What nodes are told while they wait for a round, or for the others to finish.

#include <algorithm>

#include "rendezvous/service/run_service.h"

namespace muster {

void RunService::begin_to_wait(Run& run, ConnectionId client, Instant now) {
  const Instant tell_at = now + options_.waiting_interval;
  if (run.waiting.empty()) run.tell_at = std::max(run.tell_at, tell_at);
  run.waiting.try_emplace(client.value, Run::Waiter{tell_at, {}});
}

void RunService::tell_waiting(Run& run, Instant now) {
  run.may_tell = false;
  run.tell_at = now + options_.waiting_interval;
  // Rank 0 is done in a moment, as a rule: worth a line only if it is not.
  const bool preparing = run.rendezvous->phase() == Rendezvous::Phase::Preparing;
  if (preparing && !std::exchange(run.was_preparing, true)) return void(run.may_tell = true);
  run.was_preparing = preparing;
  for (auto& [client, waiter] : run.waiting) {
    if (waiter.tell_at > now) {
      run.may_tell = true;
      run.tell_at = std::min(run.tell_at, waiter.tell_at);
      continue;
    }
    std::string reason = run.rendezvous->reason_for({client});
    if (reason == waiter.told) continue;
    waiter.told = std::move(reason);
    waiter.tell_at = now + options_.waiting_interval;
    effects_.emplace_back(SendNative{{client}, NativeWaiting{waiter.told}});
  }
}

}  // namespace muster
