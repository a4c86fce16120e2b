#include "agent/sessions/local_session.h"

#include <algorithm>

#include "base/system/clock.h"

namespace muster {

void LocalSession::join() {
  handlers_.host_store([this](const HostedStoreResult& store) {
    if (!handlers_.on_round) return;  // The session was closed meanwhile.
    if (!store) return handlers_.on_failed("cannot host the store: " + store.error().what());
    SessionRound round{.round = round_++, .facts = {}, .job_decides = false};
    round.facts.ranks = {.world_size = local_world_size_, .role_world_size = local_world_size_};
    round.facts.master_addr = master_addr_;
    round.facts.master_port = store->port;
    // The generation must be above those of earlier jobs with this name. Each of their rounds took
    // a millisecond or more, so the clock in milliseconds is above all of them.
    generation_ = std::max(generation_ + 1, wall_now().microseconds / 1'000);
    round.facts.generation = generation_;
    handlers_.on_round(std::move(round));
  });
}

}  // namespace muster
