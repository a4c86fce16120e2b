// The history of a run, for people: the newest events, and the first failure.
//
// Pure. The number of events and the length of each are bounded, whatever a client does; many
// events of one kind in a row become one. The history gets an entry for each transition of a run,
// not for each message.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/time.h"
#include "rendezvous/rounds/rendezvous_events.h"

namespace muster {

/// Events that are kept of one run.
inline constexpr std::size_t kMaxRunEvents = 64;
/// Events of one kind in a row; further ones are only counted.
inline constexpr std::size_t kMaxLikeEvents = 8;
/// The text of one event; a longer one is cut.
inline constexpr std::size_t kMaxEventTextBytes = 512;

inline constexpr std::size_t kRestartCauses = 6;
/// "workers_failed". The text is static.
std::string_view to_string(RestartCause cause);

struct RunEvent {
  enum class Kind {
    Began,  // A run of this id begins; also after an earlier run of this id.
    NodeJoined,
    NodeLeft,
    NodeLost,
    RoundComplete,
    RoundRestarts,  // The workers of the round are stopped; `cause` says why.
    RoundResumed,   // All nodes of the round have come back to a musterd that was restarted.
    RoundNotResumed,
    Closed,  // By a torchrun node.
    Succeeded,
    Failed,
    Broken,       // An invariant of muster was broken.
    NodeDrained,  // By an operator, like the next two.
    NodeExcluded,
    NodeAllowed,
    NoticeGiven,  // The node will go.
    NodeSaved,    // All workers of the node have answered the notice.
    NoticeOver,
    Preempted,  // The run has ended because nodes of it will go.
  };
  Kind kind = Kind::Began;
  std::uint64_t number = 0;  // Goes up with each event, also across restarts of the host.
  Instant at{};
  std::int64_t round = 0;
  std::string node = {};         // As torchrun names it; empty: no single node.
  std::optional<int> rank = {};  // The node's group rank in the newest complete round.
  std::optional<RestartCause> cause = {};
  std::string text = {};
  bool hopeless = false;              // Failed: --restart-policy has ended the run.
  std::uint64_t like = 0;             // Further events of this kind, which were only counted.
  std::optional<Duration> took = {};  // RoundComplete: the time since its first node came.
};
std::string_view to_string(RunEvent::Kind kind);

/// A histogram of durations, with classes as in Prometheus.
struct DurationHistogram {
  /// The upper bounds in seconds; the last class has none.
  static constexpr std::array<double, 14> kBounds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                                     1,     2.5,  5,     10,   30,  60,   300};
  std::array<std::uint64_t, kBounds.size() + 1> counts{};
  double sum_seconds = 0;

  void add(Duration took);
  std::uint64_t count() const;
};

/// Counters of all runs of a server since its start.
struct RunCounters {
  std::uint64_t runs_begun = 0;
  std::uint64_t runs_succeeded = 0;
  std::uint64_t runs_failed = 0;
  std::uint64_t runs_hopeless = 0;  // Of the failed ones: --restart-policy ended them.
  std::uint64_t runs_preempted = 0;
  std::uint64_t notices = 0;
  std::uint64_t rounds = 0;
  std::uint64_t rounds_resumed = 0;
  std::uint64_t nodes_joined = 0;
  std::uint64_t nodes_left = 0;
  std::uint64_t nodes_lost = 0;
  std::array<std::uint64_t, kRestartCauses> restarts{};  // By RestartCause.
  DurationHistogram rendezvous;  // From a round's first node to its completion.
  DurationHistogram recovery;    // From a restart to the completion of the next round.
};

class RunHistory {
 public:
  RunHistory() = default;
  /// The first event gets the number `first`, at least 1.
  explicit RunHistory(std::uint64_t first) : first_(first), next_(first) {}

  /// Records an event and counts it; gives the event its number. `now` never goes backwards.
  void add(RunEvent event, Instant now, RunCounters& counters);

  const std::deque<RunEvent>& events() const { return events_; }
  std::optional<std::uint64_t> last_number() const {
    return next_ == first_ ? std::nullopt : std::optional(next_ - 1);
  }
  /// The first failed worker, lost node or failed end since the run began.
  const std::optional<RunEvent>& first_failure() const { return first_failure_; }
  /// The first failure that an earlier host has recorded. It is no event of this host.
  void restore_first_failure(RunEvent failure) { first_failure_ = std::move(failure); }

 private:
  bool merge(const RunEvent& event, Instant now);

  std::deque<RunEvent> events_;
  std::optional<RunEvent> first_failure_;
  std::optional<Instant> restarts_since_;
  std::uint64_t first_ = 1;
  std::uint64_t next_ = 1;
};

}  // namespace muster
