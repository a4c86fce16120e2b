#include "rendezvous/rounds/run_core.h"

#include "base/printable_text.h"

namespace muster {

RunCore::RunCore(const RendezvousSetup& given)
    : setup(given), settings(given.run), members(given.recorded) {
  generations.highest = given.generation_floor;
}

void RunCore::move_to(RunPhase next) {
  if (round.phase == next) return;
  if (!may_follow(round.phase, next)) violate("a round is in a phase that cannot follow");
  round.phase = next;
}

// A node that has been in a round has a generation.
bool RunEnding::was_missed_by(const NodeJoined& event) const {
  return outcome &&
         (event.generation > 0 || instances.contains(event.instance) ||
          std::find(lost_agents.begin(), lost_agents.end(), event.instance) != lost_agents.end());
}

std::optional<Instant> RunCore::next_deadline() const {
  std::optional<Instant> next = members.next_deadline();
  const auto also = [&](std::optional<Instant> other) {
    if (other && (!next || *other < *next)) next = other;
  };
  if (!complete() && !ending.closed && settings && !recovery) {
    if (unseen.may_run(now))
      also(unseen.wait_until());
    else if (members.counts().absent == 0 && !restart_waits())
      also(last_call.end);
    also(last_call.spares_step_in);
  }
  if (phase() == RunPhase::Preparing) also(round.prepared_by);
  if (restart_waits()) also(restarts.wait_until);
  if (recovery) also(recovery->deadline());
  if (returns.cancelled && !ending.outcome) also(returns.cancelled->until);
  if (!ending.outcome) also(members.next_doom_after(now));
  if (round.tell_at && *round.tell_at > now) also(round.tell_at);
  return next;
}

bool RunCore::can_be_moved_out(const Member& member) const {
  switch (member.place) {
    case Place::Participant:
      return !complete();
    case Place::Waiting:
    case Place::Redundant:
    case Place::Standby:
    case Place::HeldBack:
      return true;
    case Place::Away:
    case Place::Restarting:  // When it joins again, after its workers have stopped.
    case Place::LeftOut:
    case Place::Finished:
    case Place::Resuming:
    case Place::KeptOut:
      return false;
  }
  return false;
}

const Member* RunCore::rank_0() const {
  return members.first_in(Place::Participant,
                          [](const Member& member) { return member.rank == 0; });
}

std::size_t RunCore::expected() const {
  return members.count(Place::Restarting) + members.count(Place::Away) +
         members.count(Place::Waiting) + members.count(Place::Resuming) + returns.missing() +
         members.counts().torch_redundant;
}

bool RunCore::is_held_up() const {
  // A round with an absent node would break at once if that node does not come back.
  return restart_waits() || recovery || members.counts().absent > 0 || unseen.may_run(now);
}

const RunSettings& RunCore::known_settings() const {
  static const RunSettings none;
  if (settings) return *settings;
  violate("a rule needs the run's settings, and nobody has brought them");
  return none;
}

void RunCore::note_refusal(const std::string& text) {
  std::string shown = printable_text(text);
  if (complete() || ending.outcome || shown == round.refusal) return;
  round.refusal = std::move(shown);
  changed();
}

void RunCore::violate(std::string_view invariant) const {
  if (!violated) violated = invariant;
}

void RunCore::send_outcome(ConnectionId to) {
  if (!ending.outcome) return violate("the outcome is told of a run that has not ended");
  RunEnded message = *ending.outcome;
  message.to = to;
  send(std::move(message));
}

}  // namespace muster
