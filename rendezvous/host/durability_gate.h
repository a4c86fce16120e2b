// The gate between a host's changes and its effects: an effect leaves when the changes before it
// are durable.
//
// If the storage fails, training goes on: effects leave at once, and the caller lets no new run
// begin, until the changes are durable that existed when the storage failed last. With a shared
// state, which another process may take over, effects wait however long that takes. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "rendezvous/host/held_effects.h"
#include "rendezvous/host/run_effect.h"
#include "rendezvous/state/run_state.h"

namespace muster {

class DurabilityGate {
 public:
  struct Options {
    bool recorded = false;      // If not, there are no changes, and no effect waits.
    bool shared_state = false;  // RunServiceOptions::shared_state.
    Duration patience{};        // After this time without an answer, the storage has failed.
  };
  enum class News { None, Failing, Works };

  explicit DurabilityGate(const Options& options) : options_(options) {}

  // Effects, in their order.

  template <typename Effect>
  void send(Effect effect) {
    effects_.emplace_back(std::move(effect));
  }
  /// Drops the effects for this client. Its number may be used again at once.
  void drop_client(ConnectionId client);
  /// Effects that wait for durable changes are not counted until they are released.
  bool has_effects() const { return !effects_.empty() || held_.has_released(); }
  std::vector<RunEffect> take_effects();

  // Changes.

  void record(const std::string& run_id, RunChange change);
  /// Nothing of the run is kept but its changes from now on.
  void forget(const std::string& run_id);
  void record_end(EndedRun run);
  /// The changes since the last call. Empty if there are none.
  std::optional<StateChanges> take_changes(Instant now);
  /// Whether there are changes for which effects must wait.
  bool is_waiting() const;

  // The storage.

  News handle_report(const StateReport& report, Instant now);
  News fail(const std::string& why);
  /// Why changes are not durable. Empty: no problem.
  const std::string& problem() const { return problem_; }
  bool works() const { return problem_.empty(); }
  /// Since when changes have waited for the storage; empty if none do.
  std::optional<Instant> waiting_since() const { return waiting_since_; }
  /// When the storage counts as failed if it does not answer. Empty: it owes no answer, or has
  /// failed already.
  std::optional<Instant> patient_until() const;

 private:
  Options options_;
  std::vector<RunEffect> effects_;
  HeldEffects held_;  // Effects that wait until changes are durable.
  StateChanges changes_;
  std::uint64_t turn_ = 0;     // The number of the changes that were taken last.
  std::uint64_t durable_ = 0;  // The number up to which changes are durable.
  std::optional<Instant> waiting_since_;
  std::string problem_;
  std::uint64_t problem_turn_ = 0;  // The newest turn when the storage failed last.
};

}  // namespace muster
