#include "rendezvous/core/rendezvous.h"

#include "rendezvous/core/check.h"

namespace muster {

Rendezvous::Rendezvous(const RendezvousSetup& setup) : setup_(setup), run_(setup.run) {}

RendezvousActions Rendezvous::step(const RendezvousEvent& event, Instant now) {
  MUSTER_CHECK(now >= now_);
  now_ = now;
  actions_.clear();
  std::visit([this](const auto& e) { on(e); }, event);
  settle();
  return std::exchange(actions_, {});
}

std::optional<Instant> Rendezvous::next_deadline() const {
  std::optional<Instant> next = liveness_.next_deadline();
  const auto also = [&](std::optional<Instant> other) {
    if (other && (!next || *other < *next)) next = other;
  };
  if (!complete_ && !closed_ && run_) {
    also(deadline_);
    also(spares_step_in_);
  }
  if (!join_deadlines_.empty()) also(join_deadlines_.begin()->first);
  return next;
}

Rendezvous::Phase Rendezvous::phase() const {
  if (outcome_) return Phase::Ended;
  if (!complete_) return Phase::Gathering;
  if (draining_) return Phase::Draining;
  return preparing_ ? Phase::Preparing : Phase::Running;
}

const RunSettings& Rendezvous::run() const {
  MUSTER_CHECK(run_.has_value());
  return *run_;
}

/// Its own name, or where another instance has that, with the next free number behind it.
NodeName Rendezvous::name_for(const NodeJoined& event) const {
  NodeName name = event.name;
  if (event.instance.empty()) return name;  // An older muster.
  if (const auto known = by_instance_.find(event.instance); known != by_instance_.end()) {
    const NodeName& has = members_.at(known->second).name;
    if (has.addr == name.addr && has.pid == name.pid) return has;
  }
  for (auto found = by_name_.find(name); found != by_name_.end(); found = by_name_.find(name)) {
    const Member& other = members_.at(found->second);
    if (!other.native || other.instance.empty() || other.instance == event.instance) break;
    // One of so many numbers is free.
    const bool last = name.local_id < 0 || name.local_id >= std::int64_t{kMaxMembers};
    name.local_id = last ? 0 : name.local_id + 1;
  }
  return name;
}

std::optional<JoinRefused> Rendezvous::refusal_of(const NodeJoined& event) const {
  using Why = JoinRefused::Why;
  const std::string who = to_string(event.name);
  const auto refuse = [&](Why why, std::string text) {
    return JoinRefused{event.from, why, std::move(text)};
  };
  if (event.protocol_version != kNativeProtocolVersion)
    return refuse(Why::Version, who + " runs muster " + event.muster_version + " (protocol " +
                                    std::to_string(event.protocol_version) +
                                    "), the rendezvous speaks protocol " +
                                    std::to_string(kNativeProtocolVersion));
  if (closed_)
    return refuse(Why::Closed,
                  "the run is over" +
                      (outcome_ && !outcome_->why.empty() ? ": " + outcome_->why : std::string()));
  if (run_ && event.run != *run_)
    return refuse(Why::Settings, "settings differ: " + describe_difference(event.run, *run_) +
                                     " (" + who + " against " + run_from_ + ")");
  if (event.local_world_size < 1 || event.local_world_size > (1 << 20))
    return refuse(Why::Settings,
                  who + " brings " + std::to_string(event.local_world_size) + " workers");
  const auto named = by_name_.find(event.name);
  if (named == by_name_.end() && members_.size() >= kMaxMembers)
    return refuse(Why::TooManyNodes, "the run has " + std::to_string(kMaxMembers) + " nodes");
  if (named != by_name_.end() && !members_.at(named->second).native)
    return refuse(Why::NameTaken, "a torchrun node is called " + who);
  if (named != by_name_.end() && members_.at(named->second).instance != event.instance)
    return refuse(Why::NameTaken, "another node is called " + who +
                                      "; an older muster cannot be told from it by more than that");
  const auto bound = by_connection_.find(event.from.value);
  if (bound != by_connection_.end() && members_.at(bound->second).name != event.name)
    return refuse(Why::NameTaken, "this connection belongs to " +
                                      to_string(members_.at(bound->second).name) + ", not " + who);
  return std::nullopt;
}

void Rendezvous::on(const NodeJoined& told) {
  NodeJoined event = told;
  event.name = name_for(told);
  if (told.life != 0 && setup_.life != 0 && told.life != setup_.life) event.last_round = -1;
  if (auto refusal = refusal_of(event)) return actions_.push_back(*std::move(refusal));
  if (!run_) {
    run_ = event.run;
    run_from_ = to_string(event.name);
  }
  const auto named = by_name_.find(event.name);
  const bool known = named != by_name_.end();
  const MemberId id = known ? named->second : add_member(event.name, true);
  Member& member = members_.at(id);
  const bool reconnected = known && member.connection != event.from;
  bind(id, event.from);
  member.instance = event.instance;
  if (!event.instance.empty()) by_instance_[event.instance] = id;
  member.local_world_size = event.local_world_size;
  member.role = event.role;
  member.preferred_rank = event.preferred_rank;
  member.spare = event.spare;
  member.hosts_rendezvous = event.hosts_rendezvous;
  touch(id);
  if (known) return join_again(id, event, reconnected);
  place(id, event.spare ? Place::Standby : Place::Redundant);
  // A first round that lacks nodes is filled from the spares when nobody else comes.
  if (first_round()) spares_step_in_ = now_ + run().last_call_timeout;
}

void Rendezvous::join_again(MemberId id, const NodeJoined& event, bool reconnected) {
  Member& member = members_.at(id);
  // Sent before it heard of the round, or of the restart: it says nothing new. But on another
  // connection it says that it will never hear of them by the one before.
  if (member.place == Place::Participant && (!complete_ || event.last_round < round_)) {
    if (complete_ && reconnected && preparing_ && member.rank == 0) prepare_round();
    if (complete_ && reconnected && !preparing_) actions_.push_back(announcement(member));
    return;
  }
  if (event.last_round < member.restarted_round && !reconnected) return;
  if (member.place == Place::Participant)
    begin_restart(RestartCause::Requested, event.name, "it joined again");
  if (outcome_) return;
  if (member.succeeded) --succeeded_;
  member.succeeded = false;
  if (member.place == Place::Restarting) {
    place(id, Place::Waiting);
    return set_join_deadline(id, now_ + run().join_timeout);
  }
  // Left out of a round that was filled without it: as if it were new. Elsewhere it has retried.
  if (member.place == Place::LeftOut || member.place == Place::Finished)
    place(id, event.spare ? Place::Standby : Place::Redundant);
}

void Rendezvous::on(const KeptAlive& event) {
  MemberId id = 0;
  if (from(event.from, &id) != nullptr) return touch(id);
  if (!outcome_) return actions_.push_back(NotAMember{event.from});
  RunEnded message = *outcome_;
  message.to = event.from;
  actions_.push_back(std::move(message));
}

void Rendezvous::on(const NodeLeft& event) {
  MemberId id = 0;
  if (from(event.from, &id) != nullptr) gone(id, RestartCause::NodeLeft, "it left");
}

void Rendezvous::on(const WorkersFailed& event) {
  MemberId id = 0;
  Member* member = from(event.from, &id);
  if (member == nullptr || !member->native) return;
  touch(id);
  // Others may have failed of the same cause: a restart that has begun is not counted again.
  if (!complete_ || draining_ || event.round != round_ || member->place != Place::Participant)
    return;
  if (restarts_used_ >= run().max_restarts) {
    std::string why = event.what;
    why += run().max_restarts == 0
               ? " (--max-restarts=0)"
               : "; all " + std::to_string(restarts_used_) + " restarts (--max-restarts) are used";
    return end_run(false, member->name, why);
  }
  ++restarts_used_;
  const NodeName who = member->name;
  begin_restart(RestartCause::WorkersFailed, who, event.what);
}

void Rendezvous::on(const RestartRequested& event) {
  MemberId id = 0;
  const Member* member = from(event.from, &id);
  if (member == nullptr || !member->native) return;
  touch(id);
  if (complete_ && !draining_)
    begin_restart(RestartCause::Requested, NodeName(member->name), event.what);
}

void Rendezvous::on(const StoreReady& event) {
  MemberId id = 0;
  const Member* member = from(event.from, &id);
  if (member == nullptr || !member->native) return;
  touch(id);
  const bool rank_0 = member->place == Place::Participant && member->rank == 0;
  if (!complete_ || !preparing_ || draining_ || !rank_0 || event.round != round_) return;
  store_ = StoreAddress{event.addr, event.port};
  announce_round();
}

void Rendezvous::on(const NodeFinished& event) {
  MemberId id = 0;
  Member* member = from(event.from, &id);
  if (member == nullptr || !member->native) return;
  touch(id);
  if (!event.succeeded) return end_run(false, member->name, event.what);
  if (member->succeeded || event.round > round_) return;
  const bool restarting = member->place == Place::Restarting || member->place == Place::LeftOut;
  if (!restarting && !(member->place == Place::Participant && complete_)) return;
  member->succeeded = true;
  ++succeeded_;
  changed();
  // It was told to restart, but its workers had ended well before they heard of it.
  if (restarting) place(id, Place::Finished);
  end_if_finished();
}

void Rendezvous::on(const ConnectionLost& event) {
  MemberId id = 0;
  if (from(event.from, &id) != nullptr) gone(id, RestartCause::NodeLost, "its connection closed");
}

void Rendezvous::on(const RendezvousTimePassed&) {
  for (const MemberId id : liveness_.take_lost(now_)) {
    const Member& member = members_.at(id);
    if (member.waits != Waits::No) {
      touch(id);
      continue;
    }
    if (member.succeeded) continue;  // Should it live on after all, it will be told the end.
    const Duration silent = member.native ? setup_.lease : torch_lease(member);
    gone(id, RestartCause::NodeLost,
         "not heard for " +
             std::to_string(std::chrono::duration_cast<std::chrono::seconds>(silent).count()) +
             " s");
  }
  join_deadlines();
}

void Rendezvous::join_deadlines() {
  while (!join_deadlines_.empty() && join_deadlines_.begin()->first <= now_) {
    const MemberId id = join_deadlines_.begin()->second;
    const Member& member = members_.at(id);
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(run().join_timeout).count();
    if (member.connection)
      actions_.push_back(
          JoinRefused{*member.connection, JoinRefused::Why::TimedOut,
                      "no round within " + std::to_string(seconds) +
                          " s (--rdzv-conf join_timeout): " + std::string(reason())});
    gone(id, RestartCause::NodeLost, "its join_timeout is over");
  }
}

}  // namespace muster
