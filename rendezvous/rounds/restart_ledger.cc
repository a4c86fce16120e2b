#include "rendezvous/rounds/restart_ledger.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace muster {
namespace {

constexpr int kEarlyCost = 2;  // Of an attempt that ended before any progress.

/// 1 s, 2 s, 4 s and so on.
Duration wait_before(int restart) {
  Duration wait = kFirstRestartWait;
  for (int i = 1; i < restart && wait < kLongestRestartWait; ++i)
    wait *= 2;
  return std::min(wait, kLongestRestartWait);
}

}  // namespace

void RestartLedger::begin_attempt(Instant now) {
  costs_.progressed = costs_.judged = false;
  begun_ = now;
}

bool RestartLedger::raise_best(std::int64_t step) {
  costs_.tells_progress = true;
  // A restarted script begins at its checkpoint: steps that were taken before are no progress.
  if (costs_.best_step && step <= *costs_.best_step) return false;
  costs_.best_step = step;
  return true;
}

bool RestartLedger::note_step(std::int64_t step) {
  return raise_best(step) && progressed();
}

bool RestartLedger::progressed() {
  costs_.tells_progress = true;
  costs_.without_progress = costs_.since_progress = 0;
  return !std::exchange(costs_.progressed, true);
}

void RestartLedger::note_late_step(std::int64_t step) {
  if (raise_best(step)) costs_.without_progress = 0;
}

RestartLedger::Progress RestartLedger::progress_of(const Ended& ended) const {
  if (costs_.progressed) return Progress::Made;
  if (!ended.all_tell) return Progress::Unknown;
  if (costs_.tells_progress) return Progress::None;
  // A script that tells nothing may train for days. One that ends at once has done nothing.
  return begun_ && ended.now - *begun_ < kShortAttempt ? Progress::None : Progress::Unknown;
}

RestartLedger::Decision RestartLedger::end_attempt(const Ended& ended,
                                                   const RestartBudgets& budgets) {
  const RestartPolicy& policy = budgets.policy;
  const bool is_node = ended.how == AttemptEnd::Node;
  if (is_node && !policy.counts_nodes()) return {};
  const Progress progress = progress_of(ended);
  if (progress != Progress::None)
    costs_.without_progress = 0;
  else if (!costs_.judged)
    ++costs_.without_progress;
  costs_.judged = true;
  if (policy.on && costs_.without_progress >= kAttemptsWithoutProgress)
    return {.restarts = false, .hopeless = true};
  const bool is_hang = ended.how == AttemptEnd::Hang && policy.counts_hangs();
  const int budget = is_node   ? policy.nodes.value_or(0)
                     : is_hang ? policy.hangs.value_or(0)
                               : budgets.failures;
  int& paid = is_node ? costs_.nodes : is_hang ? costs_.hangs : costs_.failures;
  if (paid >= budget) return {.restarts = false};
  const int cost = policy.on && progress == Progress::None ? kEarlyCost : 1;
  paid = std::min(paid + cost, budget);
  ++costs_.since_progress;
  return {.wait = policy.on ? wait_before(costs_.since_progress) : Duration::zero()};
}

void RestartLedger::charge_failures(int count, int most) {
  costs_.failures = std::clamp(costs_.failures + count, 0, most);
}

std::string used_up_text(const std::string& failure, AttemptEnd end, const RestartBudgets& budgets,
                         int restarts) {
  const bool is_hang = end == AttemptEnd::Hang && budgets.policy.counts_hangs();
  if (end == AttemptEnd::Node || is_hang) {
    const std::string_view name = is_hang ? "hangs" : "nodes";
    const int most = (is_hang ? budgets.policy.hangs : budgets.policy.nodes).value_or(0);
    return failure + "; the budget of " + std::string(name) + " (--restart-policy " +
           std::string(name) + "=" + std::to_string(most) + ") is used up";
  }
  if (budgets.policy.on)
    return failure + "; the budget of failures (--restart-policy failures=" +
           std::to_string(budgets.failures) + ") is used up";
  if (budgets.failures == 0) return failure + " (--max-restarts=0)";
  if (restarts == 1) return failure + "; its 1 restart (--max-restarts) is used";
  return failure + "; all " + std::to_string(restarts) + " restarts (--max-restarts) are used";
}

std::string budgets_text(const RestartCosts& costs, const RestartBudgets& budgets) {
  if (!budgets.policy.on) return {};
  const auto paid = [](const char* name, int used, int most) {
    return std::string(name) + " " + std::to_string(used) + "/" + std::to_string(most);
  };
  std::string text = paid("failures", costs.failures, budgets.failures);
  if (budgets.policy.hangs) text += ", " + paid("hangs", costs.hangs, *budgets.policy.hangs);
  if (budgets.policy.nodes) text += ", " + paid("nodes", costs.nodes, *budgets.policy.nodes);
  return text;
}

std::string no_progress_text(int attempts) {
  if (attempts < kAttemptsWithoutProgress) return {};
  return "the last " + std::to_string(attempts) +
         " attempts ended before any progress: a further restart would hardly get further. Look at "
         "how each of them ended first (a path, an argument, a checkpoint that cannot be loaded, "
         "memory), correct that, and start the job again";
}

}  // namespace muster
