// A round that an earlier host made, while its nodes resume: each reports the round and its rank.
//
// A host that was restarted does not know its rounds, but the nodes do. If every node of a round
// resumes, each with its own rank, the host adopts the round as it was (resuming.h).
// docs/rendezvous_rules.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/time.h"
#include "rendezvous/rounds/liveness.h"
#include "rendezvous/rounds/rendezvous_events.h"
#include "rendezvous/rounds/round_ranks.h"

namespace muster {

/// Exists only while nodes resume.
class Recovery {
 public:
  using MemberId = Liveness::Id;
  struct Failure {
    NodeName who;
    std::string what;
    bool hung = false;  // WorkersFailed::hung
  };
  struct Node {
    MemberId id = 0;
    std::optional<WorkerRanks> workers;
  };

  /// The round is the one that the first resuming node reports.
  Recovery(const NodeResumed& first, Duration own_lease, Instant now);

  /// Whether the node reports this round.
  bool is_of(const NodeResumed& event) const;
  /// Whether the node, which joins, was in this round.
  bool was_in(const NodeJoined& event) const {
    return event.generation == generation_ && event.last_round == round_;
  }
  /// A node of the round is here: the others have a lease from now on.
  void extend(Duration lease, Instant now);
  /// Whether a member other than `same` has reported this rank.
  bool is_taken(int rank, std::optional<MemberId> same) const;
  /// The member's report. It replaces an earlier one.
  void add(MemberId id, const NodeName& name, const NodeResumed& event);
  void remove(MemberId id);
  bool is_whole() const { return nodes_.size() == static_cast<std::size_t>(world_); }
  /// The first ranks that nobody has reported, as text; empty if the round is whole.
  std::string missing_ranks() const;

  std::int64_t round() const { return round_; }
  std::int64_t generation() const { return generation_; }
  std::size_t world() const { return static_cast<std::size_t>(world_); }
  Instant deadline() const { return deadline_; }
  Duration lease() const { return lease_; }
  int restart_count() const { return restart_count_; }
  const std::optional<StoreAddress>& store() const { return store_; }
  const std::optional<Failure>& failure() const { return failure_; }
  const std::map<int, Node>& nodes() const { return nodes_; }
  /// The nodes' reports of their progress: NodeResumed::progressed and the highest step.
  bool progressed() const { return progressed_; }
  const std::optional<std::int64_t>& step() const { return step_; }

 private:
  std::int64_t round_ = 0;
  std::int64_t generation_ = 0;
  int world_ = 1;
  std::optional<StoreAddress> store_;
  Instant begun_{};
  Instant deadline_{};
  Duration lease_{};                // The longest one that a node of the round has reported.
  int restart_count_ = 0;           // The round's, as its nodes report it; the highest one.
  std::map<int, Node> nodes_;       // By rank.
  std::optional<Failure> failure_;  // The first one that a node reported.
  bool progressed_ = false;
  std::optional<std::int64_t> step_;
};

}  // namespace muster
