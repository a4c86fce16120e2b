#include "rendezvous/rounds/run_viewer.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace muster {

std::string_view to_string(RunStanding state) {
  constexpr std::array<std::string_view, kRunStates> kNames = {
      "empty",      "gathering", "recovering", "preparing", "running",
      "restarting", "closed",    "succeeded",  "failed",    "preempted"};
  return kNames[static_cast<std::size_t>(state)];
}

std::string_view to_string(NodeState state) {
  constexpr std::array<std::string_view, kNodeStates> kNames = {
      "joined",     "preparing", "working", "finished", "absent",
      "restarting", "waiting",   "spare",   "resuming", "kept_out"};
  return kNames[static_cast<std::size_t>(state)];
}

std::optional<int> RunViewer::rank_of(const NodeName& name) const {
  if (const Member* member = run_.members.named(name)) return member->last_rank;
  const auto lost = std::find_if(run_.round.lost.rbegin(), run_.round.lost.rend(),
                                 [&](const LostNode& node) { return node.name == name; });
  return lost == run_.round.lost.rend() ? std::nullopt : std::optional(lost->rank);
}

RunStanding RunViewer::run_state() const {
  if (run_.ending.outcome)
    return run_.ending.outcome->succeeded   ? RunStanding::Succeeded
           : run_.ending.outcome->preempted ? RunStanding::Preempted
                                            : RunStanding::Failed;
  if (run_.ending.closed) return RunStanding::Closed;
  if (run_.round.phase == RunPhase::Recovering) return RunStanding::Recovering;
  if (run_.members.empty()) return RunStanding::Empty;
  switch (run_.phase()) {
    case RunPhase::Preparing:
      return RunStanding::Preparing;
    case RunPhase::Running:
      return RunStanding::Running;
    case RunPhase::Draining:
      return RunStanding::Restarting;
    case RunPhase::Recovering:
    case RunPhase::Gathering:
    case RunPhase::Ended:
      break;
  }
  return run_.round.had_one ? RunStanding::Restarting : RunStanding::Gathering;
}

NodeState RunViewer::node_state(const Member& member) const {
  if (member.succeeded || member.finished) return NodeState::Finished;
  if (member.absent_until) return NodeState::Absent;
  switch (member.place) {
    case Place::Participant:
      if (!run_.complete()) return NodeState::Joined;
      return run_.preparing() ? NodeState::Preparing : NodeState::Working;
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

RunSummary RunViewer::summary() const {
  RunSummary summary;
  summary.state = run_state();
  summary.reason = run_.reason.text(run_);
  summary.round = run_.round.number;
  summary.generation = run_.round.generation;
  summary.restarts_used = run_.restarts.used;
  summary.costs = run_.restarts.ledger.costs();
  if (run_.settings) {
    const RestartBudgets allowed = restart_budgets(*run_.settings);
    summary.restarts_allowed = allowed.failures + allowed.policy.hangs.value_or(0);
    summary.budgets = budgets();
    summary.min_nodes = run_.settings->min_nodes;
    summary.max_nodes = run_.settings->max_nodes;
  }
  summary.nodes = run_.members.size();
  summary.nodes_in_round = run_.members.count(Place::Participant);
  return summary;
}

std::optional<RestartBudgets> RunViewer::budgets() const {
  if (!run_.settings) return std::nullopt;
  const RestartBudgets budgets = restart_budgets(*run_.settings);
  return budgets.policy.on ? std::optional(budgets) : std::nullopt;
}

std::optional<int> RunViewer::first_rank_of(const Member& member) const {
  const bool numbered = run_.complete() && member.place == Place::Participant && member.rank >= 0 &&
                        static_cast<std::size_t>(member.rank) < run_.round.workers.size();
  if (!numbered) return std::nullopt;
  return run_.round.workers[static_cast<std::size_t>(member.rank)].base_global_rank.value;
}

DoomView RunViewer::doom_view(const Doom& doom, Instant now) {
  return {std::max(Duration::zero(), doom.deadline - now), doom.deadline_ms, doom.reason};
}

bool RunViewer::has_answered(const Member& member) const {
  return member.succeeded || member.finished || member.saved_round == run_.round.number;
}

std::optional<NoticeView> RunViewer::notice(Instant now) const {
  if (!run_.round.notice || run_.ending.outcome) return std::nullopt;
  const auto add = [](const NodeName& name, std::vector<NodeName>& names, std::size_t& total) {
    if (++total <= kMaxViewedNotice) names.push_back(name);
  };
  NoticeView view{.first = {.left = std::max(Duration::zero(), run_.round.notice->deadline - now),
                            .deadline_ms = 0,
                            .reason = run_.round.notice->reason},
                  .stops = run_.round.notice->stops};
  for (const Member* member : run_.members.doomed()) {
    if (!member->doom || member->place != Place::Participant) continue;
    if (view.doomed_total == 0) view.first.deadline_ms = member->doom->deadline_ms;
    add(member->name, view.doomed, view.doomed_total);
  }
  run_.members.for_each_in(Place::Participant, [&](const Member& member) {
    if (has_answered(member))
      ++view.saved;
    else
      add(member.name, view.silent, view.silent_total);
  });
  return view;
}

NodeView RunViewer::view_of(const Member& member, Instant now) const {
  NodeView node{.name = member.name, .state = node_state(member), .native = member.native};
  node.group_rank = member.last_rank;
  node.spare = member.spare;
  if (const auto kept = run_.conduct.kept_out.find(member.name)) node.kept_out = kept->how;
  if (member.doom) node.notice = doom_view(*member.doom, now);
  if (run_.round.notice && member.place == Place::Participant) node.saved = has_answered(member);
  node.strikes = run_.conduct.strikes.find(member.name.addr);
  if (member.native) {
    node.role = member.role;
    node.local_world = member.local_world_size;
  }
  node.first_rank = first_rank_of(member);
  if (const auto last = run_.members.liveness().last_seen(member.id))
    node.silent = std::max(Duration::zero(), now - *last);
  if (member.absent_until) node.absent = std::max(Duration::zero(), now - member.absent_since);
  return node;
}

RunView RunViewer::view(std::size_t offset, std::size_t nodes, Instant now) const {
  RunView view;
  view.summary = summary();
  view.offset = std::min(offset, run_.members.size());
  view.now = now;
  view.outcome = run_.ending.outcome;
  view.notice = notice(now);
  view.kept_out = run_.conduct.kept_out.entries();
  view.strikes = run_.conduct.strikes.hosts();
  auto member = std::next(run_.members.begin(), static_cast<std::ptrdiff_t>(view.offset));
  for (nodes = std::min(nodes, kMaxViewedNodes); nodes > 0 && member != run_.members.end(); --nodes)
    view.nodes.push_back(view_of((member++)->second, now));
  if (run_.ending.outcome) return view;
  if (!run_.complete() && run_.last_call.end)
    view.last_call = std::max(Duration::zero(), *run_.last_call.end - now);
  add_missing(view, now);
  return view;
}

void RunViewer::add_missing(RunView& view, Instant now) const {
  const auto add = [&](MissingNode node) {
    if (++view.missing_total <= kMaxViewedMissing) view.missing.push_back(std::move(node));
  };
  for (const LostNode& node : run_.round.lost)
    if (!run_.members.has_name(node.name))
      add({node.name, node.rank, false, node.why, std::max(Duration::zero(), now - node.at)});
  for (const Place where : {Place::Restarting, Place::Away, Place::Waiting, Place::Resuming})
    run_.members.for_each_in(where, [&](const Member& member) {
      if (member.last_rank) add({member.name, member.last_rank, true, {}, {}});
    });
  const auto coming = run_.members.count(Place::Participant) + run_.expected();
  const auto least =
      run_.settings ? static_cast<std::size_t>(run_.settings->min_nodes) : std::size_t{0};
  if (!run_.complete() && coming < least) view.lacking = least - coming;
}

std::array<std::size_t, kNodeStates> RunViewer::nodes_by_state() const {
  std::array<std::size_t, kNodeStates> counts{};
  for (const auto& [id, member] : run_.members)
    ++counts[static_cast<std::size_t>(node_state(member))];
  return counts;
}

}  // namespace muster
