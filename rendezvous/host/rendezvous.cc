#include "rendezvous/host/rendezvous.h"

#include <utility>
#include <variant>

#include "rendezvous/rounds/joins.h"
#include "rendezvous/rounds/member_watch.h"
#include "rendezvous/rounds/node_messages.h"
#include "rendezvous/rounds/notices.h"
#include "rendezvous/rounds/operator_requests.h"
#include "rendezvous/rounds/restored_run.h"
#include "rendezvous/rounds/resuming.h"
#include "rendezvous/rounds/round_rules.h"

namespace muster {
namespace {

template <typename... Handlers>
struct Router : Handlers... {
  using Handlers::operator()...;
};
template <typename... Handlers>
Router(Handlers...) -> Router<Handlers...>;

}  // namespace

Rendezvous::Rendezvous(const RendezvousSetup& setup)
    : run_(setup), view_(setup.keep_alive_interval) {}

// --- events --------------------------------------------------------------------------------------

RendezvousActions Rendezvous::step(const RendezvousEvent& event, Instant now) {
  const auto due = next_deadline();
  begin_event(now);
  if (due && run_.now - *due > run_.setup.lease / 2)
    MemberWatch(run_).extend_deadlines_after_pause(run_.now - *due);
  std::visit(
      Router{
          [this](const NodeJoined& e) { Joins(run_).on(e); },
          [this](const NodeResumed& e) { Resuming(run_).on(e); },
          [this](const ConnectionLost& e) { MemberWatch(run_).on(e); },
          [this](const NodeNotified& e) { Notices(run_).on(e); },
          [this](const NodeSaved& e) { Notices(run_).on(e); },
          [this](const OperatorAsked& e) { operator_answer_ = OperatorRequests(run_).on(e); },
          [this](const RendezvousTimePassed&) {
            MemberWatch(run_).time_passed();
            RoundRules(run_).prepare_deadline();
            Resuming(run_).time_passed();
          },
          [this](const auto& e) { NodeMessages(run_).on(e); },
      },
      event);
  RoundRules(run_).apply_rules();
  return take_actions();
}

void Rendezvous::begin_event(Instant now) {
  run_.advance(now);
  run_.actions.clear();
  run_.members.forget_erased();
}

RendezvousActions Rendezvous::take_actions() {
  if (run_.members.take_broken_index()) run_.violate("an index names a member that does not exist");
  if (const auto invariant = std::exchange(run_.violated, {})) return abandon(*invariant);
  return std::exchange(run_.actions, {});
}

RendezvousActions Rendezvous::abandon(std::string_view invariant) {
  broken_ = invariant;
  RoundRules(run_).abandon(invariant);
  run_.violated.reset();
  return std::exchange(run_.actions, {});
}

void Rendezvous::restore(const RunRecord& record, const std::vector<MemberRecord>& members,
                         Instant now, WallTime wall) {
  RestoredRun(run_).restore(record, members, now, wall);
}

void Rendezvous::host_was_frozen(Duration length, Instant now) {
  run_.advance(now);
  MemberWatch(run_).host_was_frozen(length);
}

// --- torchrun nodes ------------------------------------------------------------------------------

void Rendezvous::note_request(ConnectionId from, Instant now) {
  run_.advance(now);
  TorchrunDoor(run_, view_).note_request(from);
}

RendezvousActions Rendezvous::waits(ConnectionId from, Waits how, Instant now, WallTime wall) {
  begin_event(now);
  TorchrunDoor(run_, view_).waits(from, how, wall);
  return take_actions();
}

const RendezvousState& Rendezvous::render(Instant now, WallTime wall) {
  run_.advance(now);
  return TorchrunDoor(run_, view_).render(wall);
}

ProposalResult Rendezvous::propose(const StateProposal& proposal, Instant now, WallTime wall) {
  begin_event(now);
  ProposalResult result = TorchrunDoor(run_, view_).propose(proposal, wall);
  if (result.verdict != ProposalVerdict::Refused) result.actions = take_actions();
  return result;
}

// --- questions -----------------------------------------------------------------------------------

std::optional<Instant> Rendezvous::deserted_by() const {
  if (run_.members.counts().connected > 0) return std::nullopt;
  return run_.members.last_absent_until().value_or(run_.now);
}

const NodeName* Rendezvous::name_of(ConnectionId connection) const {
  const Member* member = run_.members.from(connection);
  return member == nullptr ? nullptr : &member->name;
}

bool Rendezvous::is_waiting(ConnectionId connection) const {
  const Member* member = run_.members.from(connection);
  if (member == nullptr) return false;
  switch (member->place) {
    case Place::Participant:
      return !run_.complete() || run_.preparing();
    case Place::Waiting:
    case Place::Redundant:
    case Place::Standby:
    case Place::HeldBack:
    case Place::KeptOut:
      return true;
    default:
      return false;
  }
}

const NodeName* Rendezvous::torchrun_leader() const {
  if (!run_.complete()) return nullptr;
  const Member* leader = run_.rank_0();
  return leader == nullptr || leader->native ? nullptr : &leader->name;
}

bool Rendezvous::is_reusable() const {
  // Every member is a muster node, and the node knows the outcome or has no connection any more.
  const MemberCounts& counts = run_.members.counts();
  return run_.ending.closed && counts.natives == run_.members.size() &&
         (run_.ending.outcome || counts.connected == 0);
}

}  // namespace muster
