#include "rendezvous/host/durability_gate.h"

#include <algorithm>

namespace muster {

void DurabilityGate::drop_client(ConnectionId client) {
  std::erase_if(effects_, [&](const RunEffect& effect) {
    const auto to = recipient_of(effect);
    return to && to->value == client.value;
  });
  held_.drop_client(client);
}

std::vector<RunEffect> DurabilityGate::take_effects() {
  std::vector<RunEffect> effects;
  if (is_waiting() || !held_.empty()) {
    // Changes that have not been taken yet get the number of the next turn.
    const std::uint64_t turn = is_waiting() ? turn_ + (changes_.empty() ? 0 : 1) : 0;
    for (RunEffect& effect : effects_)
      held_.add(std::move(effect), turn);
    held_.take_released(effects);
  } else {
    effects.swap(effects_);
  }
  effects_.clear();
  return effects;
}

void DurabilityGate::record(const std::string& run_id, RunChange change) {
  if (options_.recorded) changes_.add(run_id, std::move(change));
}

void DurabilityGate::forget(const std::string& run_id) {
  if (options_.recorded) changes_.remove(run_id);
}

void DurabilityGate::record_end(EndedRun run) {
  if (options_.recorded) changes_.ended.push_back(std::move(run));
}

std::optional<StateChanges> DurabilityGate::take_changes(Instant now) {
  if (changes_.empty()) return std::nullopt;
  changes_.number = ++turn_;
  if (!waiting_since_) waiting_since_ = now;
  return std::exchange(changes_, {});
}

bool DurabilityGate::is_waiting() const {
  if (!works() && !options_.shared_state) return false;
  return !changes_.empty() || durable_ < turn_;
}

DurabilityGate::News DurabilityGate::handle_report(const StateReport& report, Instant now) {
  if (report.durable > durable_) waiting_since_ = now;
  durable_ = std::max(durable_, report.durable);
  if (!report.problem.empty()) return fail(report.problem);
  if (durable_ >= turn_) waiting_since_.reset();
  // Later changes are on their way, as always: a busy host always has some.
  const bool has_recovered = durable_ >= problem_turn_ && !std::exchange(problem_, {}).empty();
  held_.release(works() || options_.shared_state ? durable_ : turn_);
  return has_recovered ? News::Works : News::None;
}

/// Effects do not wait for a broken disk: a host that is started again with an older record learns
/// the round from its nodes. Effects do wait for a shared state.
DurabilityGate::News DurabilityGate::fail(const std::string& why) {
  const bool is_news = problem_ != why;
  problem_ = why;
  problem_turn_ = turn_;
  held_.release(options_.shared_state ? durable_ : turn_ + 1);
  return is_news ? News::Failing : News::None;
}

std::optional<Instant> DurabilityGate::patient_until() const {
  if (!waiting_since_ || !works()) return std::nullopt;
  return *waiting_since_ + options_.patience;
}

}  // namespace muster
