#include "agent/sessions/local_session.h"

#include <algorithm>
#include <utility>

#include "base/system/clock.h"

namespace muster {

LocalSession::LocalSession(const boost::asio::any_io_executor& executor, Handlers handlers,
                           int local_world_size, std::string master_addr)
    : handlers_(std::move(handlers)),
      local_world_size_(local_world_size),
      master_addr_(std::move(master_addr)),
      notice_(executor, {.tell = handlers_.on_notice, .end = handlers_.on_end}) {}

void LocalSession::join() {
  notice_.round_ends();
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
    const AssignedRanks ranks = round.facts.ranks;
    handlers_.on_round(std::move(round));
    notice_.round_begins(ranks, local_world_size_);
  });
}

}  // namespace muster
