// Text for people: what the rendezvous is waiting for.

#include "base/seconds_text.h"
#include "rendezvous/rounds/rendezvous.h"

namespace muster {
namespace {

constexpr std::size_t kNodesShown = 8;

// "a_1_0, b_2_0 and 3 more"
class NameList {
 public:
  void add(const NodeName& name, const std::string& remark = {}) {
    if (count_++ >= kNodesShown) return;
    text_ += (text_.empty() ? "" : ", ") + to_string(name);
    if (!remark.empty()) text_ += " (" + remark + ")";
  }
  bool empty() const { return count_ == 0; }
  std::string text() const {
    if (count_ <= kNodesShown) return text_;
    return text_ + " and " + std::to_string(count_ - kNodesShown) + " more";
  }

 private:
  std::string text_;
  std::size_t count_ = 0;
};

std::string have_finished(std::size_t nodes) {
  return std::to_string(nodes) + (nodes == 1 ? " has" : " have") + " finished";
}

}  // namespace

std::string_view Rendezvous::reason() const {
  if (reasoned_ != revision_of_state()) {
    reason_ = make_reason();
    reasoned_ = revision_of_state();
  }
  return reason_;
}

std::string Rendezvous::make_reason() const {
  if (outcome_) return "ended: " + outcome_->why;
  if (closed_) return "closed: nobody may join any more";
  if (!complete()) return make_gathering_reason();
  const std::string round = "round " + std::to_string(round_);
  const auto taken = std::to_string(members_.count(Place::Participant));
  const std::string nodes = taken + (members_.count(Place::Participant) == 1 ? " node" : " nodes");
  if (draining()) {
    NameList leaving;
    members_.for_each_in(Place::Participant,
                         [&](const Member& member) { leaving.add(member.name); });
    return round + " ends: waiting for " + leaving.text() +
           " to leave it (torchrun looks once a second)";
  }
  if (preparing()) return round + " has its " + nodes + ": rank 0 empties the workers' store";
  std::string text = round + " runs with " + nodes;
  if (members_.counts().succeeded == 0) return text;
  NameList working;
  members_.for_each_in(Place::Participant, [&](const Member& member) {
    if (!member.succeeded) working.add(member.name, "rank " + std::to_string(member.rank));
  });
  return text + "; " + have_finished(members_.counts().succeeded) +
         ", still at work: " + working.text();
}

std::string Rendezvous::make_gathering_reason() const {
  const auto was_rank = [](int rank) { return "was rank " + std::to_string(rank); };
  const auto taken = members_.count(Place::Participant);
  if (recovery_)
    return "round " + std::to_string(recovery_->round) +
           " is taken up again: " + std::to_string(recovery_->by_rank.size()) + " of its " +
           std::to_string(recovery_->world) + " nodes are back";
  std::string text = "round " + std::to_string(round_) + ": " + std::to_string(taken);
  if (run_)
    text += " of " + std::to_string(run_->min_nodes) +
            (run_->max_nodes > run_->min_nodes ? " to " + std::to_string(run_->max_nodes) : "");
  text += " nodes have joined";
  NameList joined, missing, lost;
  members_.for_each_in(Place::Participant, [&](const Member& member) { joined.add(member.name); });
  if (!joined.empty()) text += " (" + joined.text() + ")";
  for (const Place where : {Place::Restarting, Place::Away, Place::Waiting, Place::Resuming})
    members_.for_each_in(where, [&](const Member& member) {
      missing.add(member.name, member.last_rank ? was_rank(*member.last_rank) : std::string());
    });
  if (!missing.empty()) text += "; to come back: " + missing.text();
  for (const LostNode& node : lost_)
    if (!members_.has_name(node.name)) lost.add(node.name, was_rank(node.rank));
  if (not_back() > 0)
    text += "; not back yet since the host was started again: " + std::to_string(not_back());
  const auto coming = taken + expected();
  const auto least = run_ ? static_cast<std::size_t>(run_->min_nodes) : std::size_t{0};
  if (coming < least) {
    text += "; " + std::to_string(least - coming) + " more must come";
    if (!lost.empty()) text += " in place of " + lost.text();
  } else if (!lost.empty()) {
    text += "; gone: " + lost.text();
  }
  if (unseen_.may_run(now_) && expected() == 0) {
    text += "; all nodes of round " + std::to_string(unseen_.round()) +
            " have fallen silent, and may train on behind a broken network: waiting for one of "
            "them for up to " +
            seconds_text(UnseenWorkers::kMaxWait);
  } else if (deadline_) {
    text += "; the last call is running";
  }
  if (members_.counts().succeeded > 0) text += "; " + have_finished(members_.counts().succeeded);
  const auto spares = members_.count(Place::Standby) + members_.count(Place::Redundant);
  if (spares > 0) text += "; " + std::to_string(spares) + " spare";
  if (members_.held() > 0)
    text +=
        "; " + std::to_string(members_.held()) + " held back, lost or ended again and again before";
  NameList kept_out;
  members_.for_each_in(Place::KeptOut, [&](const Member& member) { kept_out.add(member.name); });
  if (!kept_out.empty())
    text += "; kept out by an operator: " + kept_out.text() + " (musterctl allow lets in again)";
  return text;
}

std::string Rendezvous::reason_for(ConnectionId waiting) const {
  const Member* member = members_.from(waiting);
  std::string text(reason());
  if (member == nullptr || outcome_ || closed_) return text;
  const std::string why = why_not_let_in(*member);
  return why.empty() ? text : text + "; " + why;
}

std::optional<Instant> Rendezvous::deserted_by() const {
  if (members_.counts().connected > 0) return std::nullopt;
  return members_.last_absent_until().value_or(now_);
}

std::string Rendezvous::why_not_let_in(const Member& member) const {
  if (member.place == Place::HeldBack) {
    const auto hold = damping_.hold_of_node(member.instance, member.name.addr, now_);
    return (hold.of_address ? "agents at this node's address were gone soon after they had come, "
                            : "this node was lost ") +
           std::to_string(hold.losses) + " times within minutes: it is let in " +
           seconds_text(hold.wait) +
           " after the last time, or when the others are too few without it";
  }
  if (member.place == Place::KeptOut) return why_kept_out(member);
  if (member.place == Place::Standby)
    return "this node is a spare, and steps in when another is missing";
  if (member.place != Place::Redundant || !run_) return {};
  const auto taken = members_.count(Place::Participant) + (complete() ? 0 : expected());
  const auto places = static_cast<std::size_t>(run_->max_nodes);
  if (taken >= places)
    return std::to_string(taken) + " of " + std::to_string(places) +
           " places are taken: this node waits as a spare";
  if (complete() && members_.counts().succeeded > 0)
    return "this node is let in only if those that are still at work restart";
  if (run_->scale_policy == ScalePolicy::AtRestart)
    return "this node is let in at the next restart (--scale-policy=at-restart)";
  if (run_->scale_policy == ScalePolicy::Never)
    return "this node is let in only in place of another (--scale-policy=never)";
  return {};
}

}  // namespace muster
