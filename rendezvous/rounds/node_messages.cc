#include "rendezvous/rounds/node_messages.h"

#include <string>

#include "rendezvous/rounds/member_watch.h"
#include "rendezvous/rounds/round_rules.h"

namespace muster {

void NodeMessages::on(const KeptAlive& event) {
  if (const Member* member = run_.members.from(event.from)) return MemberWatch(run_).touch(*member);
  if (!run_.ending.outcome) return run_.send(NotAMember{event.from});
  run_.send_outcome(event.from);
}

void NodeMessages::on(const NodeLeft& event) {
  Member* member = run_.members.from(event.from);
  if (member == nullptr) return;
  if (member->last_rank) run_.unseen.clear();
  // The notice has told why, and the workers of the other nodes may see only the restart.
  const std::string why = member->doom ? "it left (" + member->doom->reason + ")" : "it left";
  MemberWatch(run_).lose(*member, RestartCause::NodeLeft, why);
}

void NodeMessages::on(const WorkersFailed& event) {
  const Member* member = run_.members.from(event.from);
  // A node that was lost reports the failure again, with the generation of its round.
  if (member == nullptr) return on(KeptAlive{event.from});
  if (!member->native) return;
  MemberWatch(run_).touch(*member);
  if (event.round == run_.round.number) RoundRules(run_).fail_round(*member, event);
}

void NodeMessages::on(const NodeProgressed& event) {
  const Member* member = run_.members.from(event.from);
  if (member == nullptr || !member->native) return;
  MemberWatch(run_).touch(*member);
  note_progress(event.round, event.step);
}

void NodeMessages::note_progress(std::int64_t round, std::optional<std::int64_t> step) {
  RestartLedger& ledger = run_.restarts.ledger;
  const bool runs = run_.phase() == RunPhase::Running && round == run_.round.number;
  if (!runs && step) return ledger.note_late_step(*step);
  // The record needs only the first progress of an attempt: it is changed seldom.
  if (runs && (step ? ledger.note_step(*step) : ledger.progressed())) run_.changed();
}

void NodeMessages::on(const RestartRequested& event) {
  const Member* member = run_.members.from(event.from);
  if (member == nullptr || !member->native) return;
  MemberWatch(run_).touch(*member);
  if (event.round >= 0 && event.round != run_.round.number)
    return;  // It is about an earlier round.
  if (run_.complete() && !run_.draining() && member->place == Place::Participant)
    RoundRules(run_).begin_restart(RestartCause::Requested, NodeName(member->name), event.what);
}

void NodeMessages::on(const StoreReady& event) {
  const Member* member = run_.members.from(event.from);
  if (member == nullptr || !member->native) return;
  MemberWatch(run_).touch(*member);
  const bool rank_0 = member->place == Place::Participant && member->rank == 0;
  if (run_.phase() != RunPhase::Preparing || !rank_0 || event.round != run_.round.number) return;
  run_.round.store = StoreAddress{event.addr, event.port};
  run_.round.prepare_failures = 0;
  RoundRules(run_).announce_round();
}

void NodeMessages::on(const NodeFinished& event) {
  Member* member = run_.members.from(event.from);
  if (member == nullptr || !member->native) return;
  MemberWatch(run_).touch(*member);
  const bool restarting = member->place == Place::Restarting || member->place == Place::LeftOut;
  if (!event.succeeded) {
    const bool in_this_round =
        member->place == Place::Participant && run_.complete() && event.round == run_.round.number;
    if (in_this_round && run_.preparing() && member->rank == 0)
      return RoundRules(run_).drop_rank_0(NodeName(member->name), event.what);
    // A failed node of the round ends the run; any other failed node only leaves.
    if (in_this_round || (restarting && event.round == member->restarted_round))
      return RoundRules(run_).end_run(false, member->name, event.what);
    return MemberWatch(run_).lose(*member, RestartCause::NodeLeft, event.what);
  }
  if (member->succeeded || event.round > run_.round.number) return;
  const bool in_round = run_.phase() == RunPhase::Running || run_.phase() == RunPhase::Draining;
  if (!restarting && !(member->place == Place::Participant && in_round)) return;
  run_.members.set_succeeded(*member, true);
  if (member->last_rank) run_.unseen.clear();
  run_.members.mark_unrecorded(member->name);
  run_.changed();
  // The node got RestartRound after its workers had succeeded.
  if (restarting) run_.members.set_place(*member, Place::Finished);
  RoundRules(run_).end_if_finished();
}

}  // namespace muster
