// What the attempts of a job have cost, and whether they get any further.
//
// An attempt is the time from the start of the workers to their end. The host of a run keeps the
// ledger of a job of several nodes (RoundRules), and the supervisor that of a node that counts its
// own failures. Pure. docs/supervision.md, "Restarts".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/time.h"
#include "rendezvous/rounds/restart_policy.h"

namespace muster {

/// What has ended an attempt, and which budget it costs.
enum class AttemptEnd {
  Failure,  // A worker failed.
  Hang,     // A worker was ended because it hung.
  Node,     // A node was lost, or left.
};

/// The part of a ledger that is recorded.
struct RestartCosts {
  /// What each budget has paid. An attempt that ends before any progress costs two.
  int failures = 0;
  int hangs = 0;
  int nodes = 0;
  int without_progress = 0;  // Attempts in a row that ended before any progress.
  int since_progress = 0;    // Restarts since an attempt that made progress.
  /// The highest step that was told in any attempt.
  std::optional<std::int64_t> best_step = {};
  bool tells_progress = false;  // Progress was told in this job, or a file will tell it.
  bool progressed = false;      // The current attempt has made progress.
  bool judged = false;          // The end of the current attempt has been counted.
  bool operator==(const RestartCosts&) const = default;
};

class RestartLedger {
 public:
  RestartLedger() = default;
  explicit RestartLedger(const RestartCosts& costs) : costs_(costs) {}

  /// The workers start.
  void begin_attempt(Instant now);
  /// The current attempt goes on, but this host does not know since when.
  void adopt_attempt() { begun_.reset(); }
  /// A file of the script tells its progress (--progress-file).
  void expect_progress() { costs_.tells_progress = true; }
  /// A step was told in the current attempt. Returns whether it is the attempt's first progress.
  bool note_step(std::int64_t step);
  /// The current attempt has made progress that has no number. Returns as note_step().
  bool progressed();
  /// A step of an attempt that is over: its end was judged without it.
  void note_late_step(std::int64_t step);

  struct Ended {
    AttemptEnd how = AttemptEnd::Failure;
    Instant now{};
    /// The progress of all workers is heard of. False: some nodes are torchrun's or an older
    /// muster's, so nothing can be said of an attempt without progress.
    bool all_tell = true;
  };
  struct Decision {
    bool restarts = true;
    /// The job ends because its last attempts have ended before any progress.
    bool hopeless = false;
    Duration wait{};  // Before the next attempt.
  };
  /// The current attempt has ended. The budget of a restart is charged. Two causes may end one
  /// attempt, such as a lost node and a failure that is reported later: each is charged.
  Decision end_attempt(const Ended& ended, const RestartBudgets& budgets);
  /// Restarts for failures were decided elsewhere.
  void charge_failures(int count, int most);

  const RestartCosts& costs() const { return costs_; }

 private:
  enum class Progress { Made, None, Unknown };
  Progress progress_of(const Ended& ended) const;
  bool raise_best(std::int64_t step);  // Returns whether it is above the best one so far.

  RestartCosts costs_;
  std::optional<Instant> begun_;  // Empty: no attempt, or unknown.
};

/// "rank 1 exited with 3; all 2 restarts for failures (--restart-policy) are used".
std::string used_up_text(const std::string& failure, AttemptEnd end, const RestartBudgets& budgets,
                         int restarts);
/// "failures 1/3, hangs 0/2": what each budget has paid. Empty without --restart-policy.
std::string budgets_text(const RestartCosts& costs, const RestartBudgets& budgets);
/// What a user should do. Empty if the last attempts were fewer than kAttemptsWithoutProgress.
std::string no_progress_text(int attempts);

}  // namespace muster
