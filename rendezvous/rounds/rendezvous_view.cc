// Views of a rendezvous for people: copies, made on request.

#include <algorithm>
#include <array>
#include <iterator>

#include "rendezvous/rounds/rendezvous.h"
#include "rendezvous/rounds/run_view.h"

namespace muster {

std::string_view to_string(RunStanding state) {
  constexpr std::array<std::string_view, kRunStates> kNames = {
      "empty",      "gathering", "recovering", "preparing", "running",
      "restarting", "closed",    "succeeded",  "failed"};
  return kNames[static_cast<std::size_t>(state)];
}

std::string_view to_string(NodeState state) {
  constexpr std::array<std::string_view, kNodeStates> kNames = {
      "joined",     "preparing", "working", "finished", "absent",
      "restarting", "waiting",   "spare",   "resuming", "kept_out"};
  return kNames[static_cast<std::size_t>(state)];
}

std::optional<int> Rendezvous::rank_of(const NodeName& name) const {
  if (const Member* member = members_.named(name)) return member->last_rank;
  const auto lost = std::find_if(lost_.rbegin(), lost_.rend(),
                                 [&](const LostNode& node) { return node.name == name; });
  return lost == lost_.rend() ? std::nullopt : std::optional(lost->rank);
}

RunStanding Rendezvous::run_state() const {
  if (outcome_) return outcome_->succeeded ? RunStanding::Succeeded : RunStanding::Failed;
  if (closed_) return RunStanding::Closed;
  if (recovering()) return RunStanding::Recovering;
  if (members_.empty()) return RunStanding::Empty;
  switch (phase()) {
    case Phase::Preparing:
      return RunStanding::Preparing;
    case Phase::Running:
      return RunStanding::Running;
    case Phase::Draining:
      return RunStanding::Restarting;
    case Phase::Recovering:
    case Phase::Gathering:
    case Phase::Ended:
      break;
  }
  return had_round_ ? RunStanding::Restarting : RunStanding::Gathering;
}

NodeState Rendezvous::node_state(const Member& member) const {
  if (member.succeeded || member.finished) return NodeState::Finished;
  if (member.absent_until) return NodeState::Absent;
  switch (member.place) {
    case Place::Participant:
      if (!complete()) return NodeState::Joined;
      return preparing() ? NodeState::Preparing : NodeState::Working;
    case Place::Away:
    case Place::Restarting:
    case Place::LeftOut:
      return NodeState::Restarting;
    case Place::Waiting:
    case Place::HeldBack:
      return NodeState::Waiting;
    case Place::Redundant:
    case Place::Standby:
      return NodeState::Spare;
    case Place::Finished:
      return NodeState::Finished;
    case Place::Resuming:
      return NodeState::Resuming;
    case Place::KeptOut:
      return NodeState::KeptOut;
  }
  return NodeState::Waiting;
}

RunSummary Rendezvous::summary() const {
  RunSummary summary;
  summary.state = run_state();
  summary.reason = reason();
  summary.round = round_;
  summary.generation = generation_;
  summary.restarts_used = restarts_used_;
  if (run_) {
    summary.restarts_allowed = run_->max_restarts;
    summary.min_nodes = run_->min_nodes;
    summary.max_nodes = run_->max_nodes;
  }
  summary.nodes = members_.size();
  summary.nodes_in_round = members_.count(Place::Participant);
  return summary;
}

NodeView Rendezvous::view_of(const Member& member, Instant now) const {
  NodeView node{.name = member.name, .state = node_state(member), .native = member.native};
  node.group_rank = member.last_rank;
  node.spare = member.spare;
  if (const auto kept = kept_out_.find(member.name)) node.kept_out = kept->how;
  node.strikes = strikes_.find(member.name.addr);
  if (member.native) {
    node.role = member.role;
    node.local_world = member.local_world_size;
  }
  const bool numbered = complete() && member.place == Place::Participant && member.rank >= 0 &&
                        static_cast<std::size_t>(member.rank) < workers_.size();
  if (numbered)
    node.first_rank = workers_[static_cast<std::size_t>(member.rank)].base_global_rank.value;
  if (const auto last = members_.liveness().last_seen(member.id))
    node.silent = std::max(Duration::zero(), now - *last);
  if (member.absent_until) node.absent = std::max(Duration::zero(), now - member.absent_since);
  return node;
}

RunView Rendezvous::view(std::size_t offset, std::size_t nodes, Instant now) const {
  RunView view;
  view.summary = summary();
  view.offset = std::min(offset, members_.size());
  view.now = now;
  view.outcome = outcome_;
  view.kept_out = kept_out_.entries();
  view.strikes = strikes_.hosts();
  auto member = std::next(members_.begin(), static_cast<std::ptrdiff_t>(view.offset));
  for (nodes = std::min(nodes, kMaxViewedNodes); nodes > 0 && member != members_.end(); --nodes)
    view.nodes.push_back(view_of((member++)->second, now));
  if (outcome_) return view;
  if (!complete() && deadline_) view.last_call = std::max(Duration::zero(), *deadline_ - now);
  add_missing(view, now);
  return view;
}

void Rendezvous::add_missing(RunView& view, Instant now) const {
  const auto add = [&](MissingNode node) {
    if (++view.missing_total <= kMaxViewedMissing) view.missing.push_back(std::move(node));
  };
  for (const LostNode& node : lost_)
    if (!members_.has_name(node.name))
      add({node.name, node.rank, false, node.why, std::max(Duration::zero(), now - node.at)});
  for (const Place where : {Place::Restarting, Place::Away, Place::Waiting, Place::Resuming})
    members_.for_each_in(where, [&](const Member& member) {
      if (member.last_rank) add({member.name, member.last_rank, true, {}, {}});
    });
  const auto coming = members_.count(Place::Participant) + expected();
  const auto least = run_ ? static_cast<std::size_t>(run_->min_nodes) : std::size_t{0};
  if (!complete() && coming < least) view.lacking = least - coming;
}

std::array<std::size_t, kNodeStates> Rendezvous::nodes_by_state() const {
  std::array<std::size_t, kNodeStates> counts{};
  for (const auto& [id, member] : members_)
    ++counts[static_cast<std::size_t>(node_state(member))];
  return counts;
}

std::string Rendezvous::objection_to(const OperatorAsked& asked) const {
  using What = OperatorAsked::What;
  if (outcome_) return "the run has ended";
  if (asked.what != What::Restart && asked.what != What::Stop) return objection_to_node(asked);
  if (members_.counts().natives == 0)
    return "there is no muster node in it, and torchrun nodes cannot be told";
  const bool restart = asked.what == What::Restart;
  if (restart && unseen_.may_run(now_)) return {};
  if (restart && phase() != Phase::Running && phase() != Phase::Preparing)
    return "no round runs: its nodes are on their way into one already";
  if (restart && closed_) return "a torchrun node has closed it: there will be no further round";
  const std::size_t left = members_.size() - members_.counts().succeeded;
  if (restart && members_.counts().succeeded > 0 &&
      left < static_cast<std::size_t>(run().min_nodes))
    return "the workers of " + std::to_string(members_.counts().succeeded) +
           " of its nodes have finished, and without these nodes no round can be complete";
  return {};
}

void Rendezvous::on(const OperatorAsked& event) {
  using What = OperatorAsked::What;
  operator_answer_.clear();
  if (!objection_to(event).empty()) return;
  if (event.what == What::Stop) return end_run(false, std::nullopt, "an operator has stopped it");
  if (event.what == What::Allow) return allow(event.node);
  if (event.what != What::Restart)
    return keep_out(event.node,
                    event.what == What::Drain ? KeptOutHow::Drained : KeptOutHow::Excluded);
  if (!complete()) return unseen_.clear();  // The operator says that the silent nodes are dead.
  begin_restart(RestartCause::Requested, operator_name(), "musterctl restart");
}

std::optional<Instant> Rendezvous::longest_unheard() const {
  return members_.liveness().oldest();
}

}  // namespace muster
