#include "rendezvous/rounds/notices.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/cut_text.h"
#include "base/seconds_text.h"
#include "rendezvous/rounds/member_watch.h"
#include "rendezvous/rounds/round_rules.h"

namespace muster {
namespace {

/// Two deadlines that are so close are one that was measured twice.
constexpr Duration kSameDeadline = std::chrono::seconds(2);
/// The pause before the nodes are told of a change. Without it, a scheduler that warns all of 1,000
/// nodes at once would cause a million messages.
constexpr Duration kTellAgainAfter = std::chrono::seconds(1);

/// A spare, or a node that is kept out, can go without the others.
bool is_in_job(const Member& member) {
  return member.place != Place::Redundant && member.place != Place::Standby &&
         member.place != Place::HeldBack && member.place != Place::KeptOut &&
         member.place != Place::LeftOut;
}

/// [first, last] for ranks in order.
void append_range(std::vector<std::pair<int, int>>& ranges, int first, int last) {
  if (!ranges.empty() && ranges.back().second + 1 == first)
    ranges.back().second = last;
  else if (ranges.size() < kMaxNoticeRanges)
    ranges.emplace_back(first, last);
}

}  // namespace

// --- events --------------------------------------------------------------------------------------

void Notices::on(const NodeNotified& event) {
  Member* member = run_.members.from(event.from);
  if (member == nullptr || !member->native || run_.ending.outcome) return;
  MemberWatch(run_).touch(*member);
  const Instant deadline = later(run_.now, event.left);
  // The operator has let this node stay in spite of this notice, which the node repeats.
  if (member->allowed_until && deadline >= *member->allowed_until - kSameDeadline &&
      (event.left == Duration::zero() || deadline <= *member->allowed_until + kSameDeadline))
    return;
  add(*member, {.deadline = deadline, .deadline_ms = event.deadline_ms, .reason = event.reason},
      false);
}

void Notices::give(const OperatorAsked& asked) {
  if (!asked.notice || run_.ending.outcome) return;
  for (auto& [id, member] : run_.members) {
    if (!member.native || member.succeeded || !matches_node(asked.node, member.name)) continue;
    add(member,
        {.deadline = later(run_.now, *asked.notice),
         .deadline_ms = asked.deadline_ms,
         .reason = asked.reason},
        true);
  }
}

/// The earliest deadline of a node counts.
void Notices::add(Member& member, Doom doom, bool by_operator) {
  cut_text(doom.reason, kMaxNoticeReasonBytes);
  const bool is_new = !member.doom.has_value();
  if (!is_new && member.doom->deadline <= doom.deadline) return;
  member.allowed_until.reset();
  doom.in_job = is_new ? is_in_job(member) : member.doom->in_job;
  doom.is_needed = !is_new && member.doom->is_needed;
  run_.send(NoticeGiven{.who = member.name,
                        .rank = member.last_rank,
                        .left = doom.deadline - run_.now,
                        .reason = doom.reason,
                        .by_operator = by_operator});
  run_.members.set_doom(member, std::move(doom));
  if (run_.can_be_moved_out(member)) move_out_if_doomed(member);
}

void Notices::on(const NodeSaved& event) {
  Member* member = run_.members.from(event.from);
  if (member == nullptr || !member->native || run_.ending.outcome) return;
  MemberWatch(run_).touch(*member);
  if (member->saved_round == event.round) return;
  // Also before the notice itself is known: after a restart of the host the nodes come back in any
  // order.
  member->saved_round = event.round;
  if (event.round == run_.round.number && run_.complete())
    run_.send(NodeAnsweredNotice{member->name, member->last_rank, event.round});
  run_.changed();
}

Notices::Withdrawn Notices::withdraw(const std::string& node) {
  Withdrawn withdrawn;
  bool was_told = false;
  for (auto& [id, member] : run_.members) {
    if (!member.doom || !matches_node(node, member.name)) continue;
    withdrawn.found = true;
    was_told = was_told || (run_.round.notice && member.place == Place::Participant);
    member.allowed_until = member.doom->deadline;
    run_.send(NoticeOver{member.name, member.last_rank, "an operator lets it stay"});
    run_.members.set_doom(member, std::nullopt);
  }
  withdrawn.restarts = was_told && !run_.preparing() && !make_round_notice();
  if (withdrawn.restarts)
    RoundRules(run_).begin_restart(RestartCause::Notice, operator_name(),
                                   "musterctl allow " + node +
                                       ": the notice is taken back, and workers may have saved and "
                                       "ended already");
  return withdrawn;
}

std::string Notices::describe(const OperatorAsked& asked) const {
  bool in_round = false;
  std::size_t untold = 0;
  for (const auto& [id, member] : run_.members) {
    const bool works = run_.complete() && member.place == Place::Participant && !member.succeeded;
    in_round = in_round || (works && matches_node(asked.node, member.name));
    untold += works && !member.takes_notices ? 1 : 0;
  }
  const std::string allow = ". `musterctl allow` takes the notice back";
  if (!in_round)
    return "it is in no running round, and stays outside the rounds from now on" + allow;
  std::string text =
      "the nodes of its round are told now: when all have saved, and at the latest " +
      seconds_text(asked.notice.value_or(Duration::zero())) + " from now, ";
  text += would_stop() ? "the job is stopped" : "the round restarts without it";
  const OnNotice policy = run_.known_settings().on_notice.value_or(OnNotice::Auto);
  if (policy == OnNotice::Auto && would_stop())
    text +=
        ", because too few other nodes are there for another round (--nnodes asks for at least " +
        std::to_string(run_.known_settings().min_nodes) + ")";
  else
    text += " (--on-notice=" + std::string(to_string(policy)) + ")";
  text += allow;
  if (untold > 0)
    text +=
        "\nwarning: " + std::to_string(untold) +
        (untold == 1 ? " node of the round is" : " nodes of the round are") +
        " of torchrun or of an older muster, which take no notices: the round ends at the deadline";
  return text;
}

void Notices::forget(const Member& member) {
  if (member.doom && !run_.ending.outcome)
    run_.send(NoticeOver{member.name, member.last_rank, "it is gone"});
}

bool Notices::move_out_if_doomed(Member& member) {
  if (!member.doom || member.doom->is_needed) return false;
  if (member.place == Place::KeptOut) return true;
  run_.members.set_held(member, std::nullopt);
  run_.members.set_join_deadline(member, std::nullopt);
  run_.members.set_place(member, Place::KeptOut);
  return true;
}

// --- the running round ---------------------------------------------------------------------------

void Notices::begin_round() {
  run_.round.drop_notice();
  for (Member* member : run_.members.doomed()) {
    if (!member->doom) continue;
    Doom doom = *member->doom;
    doom.is_needed = false;
    doom.in_job = member->place == Place::Participant;
    run_.members.set_doom(*member, std::move(doom));
  }
}

bool Notices::apply_to_complete_round() {
  if (run_.draining() || run_.ending.outcome) return false;
  update_round_notice();
  if (!run_.round.notice) return false;
  if (!run_.preparing()) tell_nodes();
  const bool over = run_.round.notice->deadline <= run_.now;
  if (!over && (run_.preparing() || !run_.round.all_have_answered)) return false;
  end_round(*run_.round.notice);
  return true;
}

void Notices::update_round_notice() {
  if (run_.members.doomed_count() == 0 && !run_.round.notice) return;
  const std::uint64_t revision = run_.whole_revision();
  if (std::exchange(run_.round.notice_made_for, revision) == revision) return;
  // Without a doomed node that still works, the notice that was told stays as it was.
  if (auto notice = make_round_notice(); notice && notice != run_.round.notice) {
    const bool urgent = notice->deadline <= run_.now + 2 * kTellAgainAfter;
    const Instant at = run_.round.told_at && !urgent
                           ? std::max(run_.now, *run_.round.told_at + kTellAgainAfter)
                           : run_.now;
    run_.round.notice = std::move(notice);
    run_.round.tell_at = std::min(run_.round.tell_at.value_or(at), at);
  }
  if (run_.round.notice) run_.round.all_have_answered = all_have_answered();
}

std::optional<RoundNotice> Notices::make_round_notice() const {
  std::optional<RoundNotice> notice;
  for (const Member* member : std::as_const(run_.members).doomed()) {
    const std::optional<Doom>& doom = member->doom;
    if (!doom || member->place != Place::Participant || member->succeeded) continue;
    if (!notice) notice = RoundNotice{.deadline = doom->deadline, .reason = {}, .doomed = {}};
    notice->doomed.push_back(member->rank);
    if (notice->doomed.size() > 1 && doom->deadline >= notice->deadline) continue;
    notice->deadline = doom->deadline;
    notice->reason = doom->reason;
  }
  if (!notice) return std::nullopt;
  std::sort(notice->doomed.begin(), notice->doomed.end());
  notice->stops = would_stop();
  return notice;
}

bool Notices::would_stop() const {
  const OnNotice policy = run_.known_settings().on_notice.value_or(OnNotice::Auto);
  if (policy == OnNotice::Stop || run_.ending.closed) return true;
  // Without any other node there is nothing to shrink to.
  const auto least = policy == OnNotice::Shrink
                         ? std::size_t{1}
                         : static_cast<std::size_t>(run_.known_settings().min_nodes);
  std::size_t others = 0;
  for (const auto& [id, member] : run_.members) {
    const bool goes_on = !member.succeeded && !member.finished && !member.doom &&
                         !run_.conduct.kept_out.find(member.name);
    if (goes_on && ++others >= least) return false;
  }
  return true;
}

bool Notices::all_have_answered() const {
  return run_.members.first_in(Place::Participant, [&](const Member& member) {
    return !member.succeeded && !member.finished && member.saved_round != run_.round.number;
  }) == nullptr;
}

void Notices::tell_nodes() {
  Round& round = run_.round;
  if (round.tell_at && *round.tell_at <= run_.now) {
    round.tell_at.reset();
    round.told_at = run_.now;
    run_.members.for_each_in(Place::Participant,
                             [&](const Member& member) { round.untold.insert(member.id); });
  }
  if (!round.notice || !round.told_at || round.untold.empty()) return;
  const PreemptionNotice message = make_message(*round.notice);
  for (auto next = round.untold.begin(); next != round.untold.end();) {
    const Member* member = run_.members.contains(*next) ? run_.members.known(*next) : nullptr;
    next = round.untold.erase(next);
    const bool is_here = member != nullptr && member->place == Place::Participant;
    if (!is_here || !member->connection || !member->takes_notices) continue;
    PreemptionNotice to_member = message;
    to_member.to = *member->connection;
    to_member.this_node = member->doom.has_value();
    run_.send(std::move(to_member));
  }
}

/// The message without its receiver.
PreemptionNotice Notices::make_message(const RoundNotice& notice) const {
  PreemptionNotice message{.to = {},
                           .round = run_.round.number,
                           .left = std::max(Duration::zero(), notice.deadline - run_.now),
                           .reason = notice.reason,
                           .nodes = {},
                           .doomed = static_cast<int>(notice.doomed.size()),
                           .ranks = {},
                           .this_node = false,
                           .stops = notice.stops};
  std::map<int, const Member*> doomed;
  for (const Member* member : std::as_const(run_.members).doomed())
    if (member->place == Place::Participant && !member->succeeded)
      doomed.emplace(member->rank, member);
  for (const auto& [rank, member] : doomed) {
    if (message.nodes.size() < kMaxNoticeNodes) message.nodes.push_back(to_string(member->name));
    const auto index = static_cast<std::size_t>(rank);
    if (index >= run_.round.workers.size()) continue;  // With torchrun nodes there are no numbers.
    const int first = run_.round.workers[index].base_global_rank.value;
    append_range(message.ranks, first, first + member->local_world_size - 1);
  }
  return message;
}

std::string Notices::doomed_text(const NodeName& first, std::size_t count,
                                 const std::string& reason) const {
  std::string text = "node " + to_string(first);
  if (count > 1) text += " and " + std::to_string(count - 1) + " more";
  return text + " will go (" + reason + ")";
}

/// All nodes have answered, or the deadline is here.
void Notices::end_round(const RoundNotice& notice) {
  const bool answered = all_have_answered();
  std::size_t silent = 0;
  run_.members.for_each_in(Place::Participant, [&](const Member& member) {
    if (!member.succeeded && !member.finished && member.saved_round != run_.round.number) ++silent;
  });
  NodeName who;  // The first that goes.
  for (const Member* member : std::as_const(run_.members).doomed())
    if (member->place == Place::Participant && who.addr.empty()) who = member->name;
  const std::string how = answered
                              ? "all nodes have saved"
                              : "the deadline is here, and " + std::to_string(silent) +
                                    (silent == 1 ? " node has" : " nodes have") + " not answered";
  if (would_stop())
    return RoundRules(run_).preempt_run(doomed_text(who, notice.doomed.size(), notice.reason) +
                                        ", and the job was stopped for that: " + how);
  RoundRules(run_).begin_restart(RestartCause::Notice, who,
                                 "it will go (" + notice.reason + "): " + how);
}

// --- between two rounds --------------------------------------------------------------------------

bool Notices::apply_while_gathering() {
  if (run_.members.doomed_count() == 0 || run_.ending.outcome) return false;
  // While nodes gather, nobody has anything to save: the others may wait for a node in place of the
  // doomed one, as they do for one in place of a lost one. But the user may want no further round.
  const bool stops = run_.known_settings().on_notice == OnNotice::Stop;
  const auto doomed = run_.members.doomed();
  for (const Member* member : doomed) {
    if (!stops || !member->doom || !member->doom->in_job) continue;
    RoundRules(run_).preempt_run(doomed_text(member->name, doomed.size(), member->doom->reason) +
                                 ", and the job was stopped for that (--on-notice=stop)");
    return true;
  }
  for (Member* member : doomed) {
    const std::optional<Doom>& doom = member->doom;
    if (!doom || !doom->is_needed || doom->deadline > run_.now) continue;
    Doom late = *doom;  // It had time enough when it was taken into this round.
    late.is_needed = false;
    run_.members.set_doom(*member, std::move(late));
    if (member->place == Place::Participant) move_out_if_doomed(*member);
    return true;
  }
  return let_in_if_needed();
}

/// Takes a doomed node into the next round if that is too small without it, and if the node has
/// time for it.
bool Notices::let_in_if_needed() {
  const auto others = run_.members.count(Place::Participant) + run_.expected() +
                      run_.members.count(Place::Redundant) + run_.members.count(Place::Standby) +
                      run_.members.held();
  if (others >= static_cast<std::size_t>(run_.known_settings().min_nodes)) return false;
  Member* last = nullptr;
  Doom doom;  // Of this member.
  for (Member* member : run_.members.doomed()) {
    if (member->place != Place::KeptOut || run_.conduct.kept_out.find(member->name)) continue;
    if (!member->doom || member->doom->deadline - run_.now < kDoomedRoundLeast) continue;
    if (last != nullptr && member->doom->deadline <= doom.deadline) continue;
    last = member;
    doom = *member->doom;
  }
  if (last == nullptr) return false;
  doom.is_needed = doom.in_job = true;
  run_.members.set_doom(*last, std::move(doom));
  MemberWatch(run_).let_in_again(*last);
  return true;
}

}  // namespace muster
