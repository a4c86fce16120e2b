// RunService: records the runs, and lets joins wait while no run can begin (durability_gate.h).

#include <algorithm>

#include "base/printable_text.h"
#include "base/seconds_text.h"
#include "rendezvous/host/run_service.h"

namespace muster {

void RunService::record_changes(Run& run, Instant now) {
  if (!options_.recorded) return;
  auto change = run.rendezvous->take_changes(now);
  if (!change) return;
  change->record.first_failure = run.first_failure;
  change->record.failure_report = run.failure_report;
  if (run.ended_ms > 0) change->record.ended_at_ms = run.ended_ms;
  if (run.began_ms > 0) change->record.began_at_ms = run.began_ms;
  change->record.previous = run.previous;
  gate_.record(std::string(run.id()), *std::move(change));
}

void RunService::recorded(const StateReport& report, Time time) {
  const auto news = gate_.handle_report(report, time.now);
  if (news == DurabilityGate::News::Failing) log_state_problem();
  if (news != DurabilityGate::News::Works) return;
  log_.write(LogLine::Level::Warning,
             "state_is_recorded_again advice=\"nothing: the storage takes changes again\"");
  for (const auto& [key, run] : runs_)
    finish_change(*run, time.now);  // Deserted runs may be forgotten again.
  join_held_nodes(time);
}

void RunService::log_state_problem() {
  const char* advice = options_.shared_state
                           ? "workers go on; no round begins or ends, and new runs are refused, "
                             "until etcd takes writes again: this ends by itself"
                           : "runs go on; new run ids are refused, and jobs that use the id of "
                             "an ended run wait; free space in the state directory, or repair "
                             "its disk: this ends by itself";
  log_.write(LogLine::Level::Error, "state_not_recorded reason=\"" +
                                        printable_text(gate_.problem()) + "\" advice=\"" + advice +
                                        "\"");
}

// --- joins that wait for the storage -------------------------------------------------------------

/// Whether the join may go to the run's rendezvous. A run whose id may be used again begins again
/// with this join. If no run can begin now, the join waits.
bool RunService::may_join(ConnectionId from, Client& client, const NodeJoined& event, Instant now) {
  Run& run = *client.run;
  // The node may not have read yet that the run is over. Its join must not begin another run.
  if (client.ended) {
    const NativeMessage refusal = JoinRefused{from, JoinRefused::Why::Closed, "the run is over"};
    gate_.send(SendNative{from, refusal});
    return false;
  }
  const bool is_new = event.last_round < 0 && !run.rendezvous->missed_the_end(event);
  // All agents of a run in etcd were stopped, and the next job of that id has other settings.
  const bool is_left = options_.hands_over && run.rendezvous->members() == 0 &&
                       run.rendezvous->has_other_settings(event.run);
  if (is_new && !is_left && must_hold(run)) return hold_join(from, event, now), false;
  if (is_new && (is_left || reusable(run, now))) begin_again(run, now);
  client.generation = run.generation;
  return true;
}

/// Whether a node that asks for the next run of this id must wait: no run begins while the state
/// cannot be recorded.
bool RunService::must_hold(const Run& run) const {
  return !gate_.works() && !has_one_life() && !draining_ && run.rendezvous->is_reusable();
}

void RunService::hold_join(ConnectionId from, const NodeJoined& join, Instant now) {
  const HeldJoin held{join, later(now, join.run.join_timeout)};
  if (held_joins_.empty()) refuse_joins_at_ = held.until;
  refuse_joins_at_ = std::min(refuse_joins_at_, held.until);
  held_joins_.insert_or_assign(from.value, held);
}

/// Not with a shared state: while it fails, nothing is sent, and a refusal would leave when the
/// node can join.
void RunService::refuse_overdue_joins(Instant now) {
  if (options_.shared_state || held_joins_.empty() || now < refuse_joins_at_) return;
  refuse_joins_at_ = later(now, kLongestWait);
  std::erase_if(held_joins_, [&](const auto& entry) {
    const auto& [number, held] = entry;
    if (now < held.until) {
      refuse_joins_at_ = std::min(refuse_joins_at_, held.until);
      return false;
    }
    const std::string text =
        "no run could begin within " + seconds_text(held.join.run.join_timeout) +
        " (--rdzv-conf join_timeout): the state of runs cannot be recorded: " + gate_.problem();
    const NativeMessage refusal =
        JoinRefused{ConnectionId{number}, JoinRefused::Why::TimedOut, text};
    gate_.send(SendNative{ConnectionId{number}, refusal});
    return true;
  });
}

// --- torchrun nodes ------------------------------------------------------------------------------

/// The answer to a torchrun node that has changed the state waits until the change is durable, as
/// messages do.
CompareSetOutcome RunService::when_recorded(ConnectionId from, CompareSetOutcome outcome) {
  auto* now = std::get_if<StateNow>(&outcome);
  if (now == nullptr || !gate_.is_waiting()) return outcome;
  gate_.send(AnswerHeld{from, std::move(now->text)});
  return HeldBack{};
}

// --- ended runs ----------------------------------------------------------------------------------

void RunService::record_end(const Run& run) {
  const Rendezvous& rendezvous = *run.rendezvous;
  const auto& outcome = rendezvous.outcome();
  if (!outcome) return;
  EndedRun ended{.run_id = std::string(run.id()),
                 .ended_at = wall_ms_ / 1'000,
                 .rounds = rendezvous.round() + (rendezvous.generation() > 0 ? 1 : 0),
                 .generation = rendezvous.generation(),
                 .nodes = rendezvous.last_world(),
                 .restarts = rendezvous.restarts_used(),
                 .outcome = {outcome->succeeded, outcome->who, outcome->why, outcome->preempted}};
  gate_.record_end(ended);
  history_.push_back(std::move(ended));
  while (history_.size() > options_.history)
    history_.pop_front();
}

// --- restoring a record --------------------------------------------------------------------------

void RunService::restore(StoredState state, Time time) {
  record_wall_clock(time);
  if (!state.id.empty()) options_.state_id = std::move(state.id);
  const std::size_t runs = state.runs.size();
  for (StoredRun& run : state.runs)
    restore(std::move(run), time);
  history_.assign(state.ended.begin(), state.ended.end());
  while (history_.size() > options_.history)
    history_.pop_front();
  if (runs > 0) log_.write(LogLine::Level::Info, "runs_restored runs=" + std::to_string(runs));
}

void RunService::restore(StoredRun stored, Time time) {
  const std::string key = std::string(kStateKeyPrefix) + stored.run_id;
  if (find(key) != nullptr) return;
  auto run = std::make_unique<Run>(report_bytes_);
  run->key = key;
  run->rendezvous = new_rendezvous();
  run->history = new_history();
  run->rendezvous->restore(stored.record, stored.members, time.now, {wall_ms_ * 1'000});
  run->turns = CompareSetTurns(options_.turns);
  // The earlier host has already logged these.
  if (stored.record.complete && !stored.record.preparing) run->logged.round = stored.record.round;
  run->logged.end = stored.record.outcome.has_value();
  run->failure_report = stored.record.failure_report;
  run->ended_ms = stored.record.ended_at_ms.value_or(0);
  run->previous = stored.record.previous;
  run->logged.closed = stored.record.closed;
  gate_.send(ShowState{key});
  // Before the failure: a run begins without one.
  log_.begins(*run, time.now,
              "the host was started again, or another one leads now: it has no earlier events");
  run->began_ms = stored.record.began_at_ms.value_or(0);
  if (const auto& failure = stored.record.first_failure) {
    const auto before =
        std::chrono::milliseconds(std::max<std::int64_t>(0, wall_ms_ - failure->at_ms));
    run->first_failure = failure;
    run->history.restore_first_failure({.kind = failure->kind,
                                        .at = time.now - before,
                                        .round = failure->round,
                                        .node = failure->node,
                                        .rank = failure->rank,
                                        .cause = failure->cause,
                                        .text = failure->text});
  }
  Run& here = runs_.add(std::move(run));
  finish_change(here, time.now);
}

}  // namespace muster
