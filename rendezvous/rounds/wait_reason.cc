#include "rendezvous/rounds/wait_reason.h"

#include "base/seconds_text.h"
#include "rendezvous/rounds/run_core.h"

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

/// Makes the texts for one state of the run.
class Reasoner {
 public:
  explicit Reasoner(const RunCore& run) : run_(run) {}
  std::string reason() const;
  std::string why_not_let_in(const Member& member) const;

 private:
  std::string gathering_reason() const;
  std::string notice_text() const;
  std::string why_kept_out(const Member& member) const;

  const RunCore& run_;
};

std::string Reasoner::reason() const {
  if (run_.ending.outcome) return "ended: " + run_.ending.outcome->why;
  if (run_.ending.closed) return "closed: nobody may join any more";
  if (!run_.complete()) return gathering_reason();
  const std::string round = "round " + std::to_string(run_.round.number);
  const auto taken = std::to_string(run_.members.count(Place::Participant));
  const std::string nodes =
      taken + (run_.members.count(Place::Participant) == 1 ? " node" : " nodes");
  if (run_.draining()) {
    NameList leaving;
    run_.members.for_each_in(Place::Participant,
                             [&](const Member& member) { leaving.add(member.name); });
    return round + " ends: waiting for " + leaving.text() +
           " to leave it (torchrun looks once a second)";
  }
  if (run_.preparing()) return round + " has its " + nodes + ": rank 0 empties the workers' store";
  std::string text = round + " runs with " + nodes + notice_text();
  if (run_.members.counts().succeeded == 0) return text;
  NameList working;
  run_.members.for_each_in(Place::Participant, [&](const Member& member) {
    if (!member.succeeded) working.add(member.name, "rank " + std::to_string(member.rank));
  });
  return text + "; " + have_finished(run_.members.counts().succeeded) +
         ", still at work: " + working.text();
}

/// "; a_1_0 will go (spot); 2 of 4 nodes have saved, not yet b_2_0; then the job is stopped"
std::string Reasoner::notice_text() const {
  if (!run_.round.notice) return {};
  const RoundNotice& notice = *run_.round.notice;
  NameList doomed, silent;
  std::size_t saved = 0;
  run_.members.for_each_in(Place::Participant, [&](const Member& member) {
    if (member.doom && !member.succeeded) doomed.add(member.name);
    const bool answered =
        member.succeeded || member.finished || member.saved_round == run_.round.number;
    saved += answered ? 1 : 0;
    if (!answered) silent.add(member.name);
  });
  std::string text = "; " + (doomed.empty() ? std::string("nodes of it") : doomed.text()) +
                     " will go (" + notice.reason + "); " + std::to_string(saved) + " of " +
                     std::to_string(run_.members.count(Place::Participant)) + " nodes have saved";
  if (!silent.empty()) text += ", not yet " + silent.text();
  return text + (notice.stops ? "; then, or at the deadline, the job is stopped"
                              : "; then, or at the deadline, the round restarts without them");
}

std::string Reasoner::gathering_reason() const {
  const auto was_rank = [](int rank) { return "was rank " + std::to_string(rank); };
  const auto taken = run_.members.count(Place::Participant);
  if (run_.recovery)
    return "round " + std::to_string(run_.recovery->round()) +
           " is taken up again: " + std::to_string(run_.recovery->nodes().size()) + " of its " +
           std::to_string(run_.recovery->world()) + " nodes are back";
  std::string text = "round " + std::to_string(run_.round.number) + ": " + std::to_string(taken);
  if (run_.settings)
    text += " of " + std::to_string(run_.settings->min_nodes) +
            (run_.settings->max_nodes > run_.settings->min_nodes
                 ? " to " + std::to_string(run_.settings->max_nodes)
                 : "");
  text += " nodes have joined";
  NameList joined, missing, lost;
  run_.members.for_each_in(Place::Participant,
                           [&](const Member& member) { joined.add(member.name); });
  if (!joined.empty()) text += " (" + joined.text() + ")";
  for (const Place where : {Place::Restarting, Place::Away, Place::Waiting, Place::Resuming})
    run_.members.for_each_in(where, [&](const Member& member) {
      missing.add(member.name, member.last_rank ? was_rank(*member.last_rank) : std::string());
    });
  if (!missing.empty()) text += "; to come back: " + missing.text();
  for (const LostNode& node : run_.round.lost)
    if (!run_.members.has_name(node.name)) lost.add(node.name, was_rank(node.rank));
  if (run_.returns.missing() > 0)
    text += "; not back yet since the host was started again: " +
            std::to_string(run_.returns.missing());
  const auto coming = taken + run_.expected();
  const auto least =
      run_.settings ? static_cast<std::size_t>(run_.settings->min_nodes) : std::size_t{0};
  if (coming < least) {
    text += "; " + std::to_string(least - coming) + " more must come";
    if (!lost.empty()) text += " in place of " + lost.text();
  } else if (!lost.empty()) {
    text += "; gone: " + lost.text();
  }
  if (run_.unseen.may_run(run_.now) && run_.expected() == 0) {
    text += "; all nodes of round " + std::to_string(run_.unseen.round()) +
            " have fallen silent, and may train on behind a broken network: waiting for one of "
            "them for up to " +
            seconds_text(UnseenWorkers::kMaxWait);
  } else if (run_.last_call.end) {
    text += "; the last call is running";
  }
  if (run_.restart_waits()) text += "; the restart waits, longer each time (--restart-policy)";
  if (run_.members.counts().succeeded > 0)
    text += "; " + have_finished(run_.members.counts().succeeded);
  const auto spares = run_.members.count(Place::Standby) + run_.members.count(Place::Redundant);
  if (spares > 0) text += "; " + std::to_string(spares) + " spare";
  if (run_.members.held() > 0)
    text += "; " + std::to_string(run_.members.held()) +
            " held back, lost or ended again and again before";
  NameList kept_out, doomed;
  run_.members.for_each_in(Place::KeptOut, [&](const Member& member) {
    (run_.conduct.kept_out.find(member.name) ? kept_out : doomed).add(member.name);
  });
  if (!doomed.empty()) text += "; will go: " + doomed.text();
  if (!kept_out.empty())
    text += "; kept out by an operator: " + kept_out.text() + " (musterctl allow lets in again)";
  if (!run_.round.refusal.empty()) text += "; a node was refused: " + run_.round.refusal;
  return text;
}

std::string Reasoner::why_not_let_in(const Member& member) const {
  if (member.place == Place::HeldBack) {
    const auto hold =
        run_.conduct.damping.hold_of_node(member.instance, member.name.addr, run_.now);
    return (hold.of_address ? "agents at this node's address were gone soon after they had come, "
                            : "this node was lost ") +
           std::to_string(hold.losses) + " times within minutes: it is let in " +
           seconds_text(hold.wait) +
           " after the last time, or when the others are too few without it";
  }
  if (member.place == Place::KeptOut) return why_kept_out(member);
  if (member.place == Place::Standby)
    return "this node is a spare, and steps in when another is missing";
  if (member.place != Place::Redundant || !run_.settings) return {};
  const auto taken =
      run_.members.count(Place::Participant) + (run_.complete() ? 0 : run_.expected());
  const auto places = static_cast<std::size_t>(run_.settings->max_nodes);
  if (taken >= places)
    return std::to_string(taken) + " of " + std::to_string(places) +
           " places are taken: this node waits as a spare";
  if (run_.complete() && run_.members.counts().succeeded > 0)
    return "this node is let in only if those that are still at work restart";
  if (run_.settings->scale_policy == ScalePolicy::AtRestart)
    return "this node is let in at the next restart (--scale-policy=at-restart)";
  if (run_.settings->scale_policy == ScalePolicy::Never)
    return "this node is let in only in place of another (--scale-policy=never)";
  return {};
}

std::string Reasoner::why_kept_out(const Member& member) const {
  const auto kept = run_.conduct.kept_out.find(member.name);
  if (!kept && member.doom)
    return "this node will go (" + member.doom->reason +
           "): it is in no round until `musterctl allow` lets it in again";
  if (!kept) return {};
  std::string text = "an operator has ";
  text += to_string(kept->how);
  text += " this node: it is in no round until `musterctl allow RUN " + kept->node +
          "` lets it in again";
  if (member.hosts_rendezvous)
    return text + "; it hosts the rendezvous, so the run ends if this muster does";
  return text + "; to end muster here (Ctrl-C) harms no other node";
}

}  // namespace

std::string_view WaitReason::text(const RunCore& run) const {
  if (made_for_ != run.whole_revision()) {
    text_ = Reasoner(run).reason();
    made_for_ = run.whole_revision();
  }
  return text_;
}

std::string WaitReason::text_for(const RunCore& run, ConnectionId waiting) const {
  const Member* member = run.members.from(waiting);
  std::string text(this->text(run));
  if (member == nullptr || run.ending.outcome || run.ending.closed) return text;
  const std::string why = Reasoner(run).why_not_let_in(*member);
  return why.empty() ? text : text + "; " + why;
}

}  // namespace muster
