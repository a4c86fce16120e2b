// What has happened in a run, for people: the newest events, and the first failure.
//
// Pure. Bounded whatever a client does: so many events, each so long; events of one kind that come
// in a row become one. It costs an entry per transition of a run, nothing per message.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/core/rendezvous_events.h"
#include "rendezvous/core/time.h"

namespace muster {

/// Events that are kept of one run.
inline constexpr std::size_t kMaxRunEvents = 64;
/// Events of one kind in a row; those that follow are counted only.
inline constexpr std::size_t kMaxLikeEvents = 8;
/// The text of one event; a longer one is cut.
inline constexpr std::size_t kMaxEventTextBytes = 512;

inline constexpr std::size_t kRestartCauses = 5;
/// "workers_failed": lives for ever.
std::string_view to_string(RestartCause cause);

struct RunEvent {
  enum class Kind {
    Began,  // A run of this id begins; also again, after an earlier one.
    NodeJoined,
    NodeLeft,
    NodeLost,
    RoundComplete,
    RoundRestarts,  // The workers of the round are stopped; `cause` says why.
    RoundResumed,   // Its nodes have come back to a musterd that knew nothing.
    RoundNotResumed,
    Closed,  // By a torchrun node.
    Succeeded,
    Failed,
    Broken,       // An invariant of muster did not hold.
    NodeDrained,  // By an operator, as the next two.
    NodeExcluded,
    NodeAllowed,
  };
  Kind kind = Kind::Began;
  std::uint64_t number = 0;  // From 1; the next event of the run has the next number.
  Instant at{};
  std::int64_t round = 0;
  std::string node = {};         // As torchrun names it; empty: no single one.
  std::optional<int> rank = {};  // The node's group rank in the newest complete round.
  std::optional<RestartCause> cause = {};
  std::string text = {};
  std::uint64_t like = 0;             // Further events of this kind that were only counted.
  std::optional<Duration> took = {};  // RoundComplete: since its first node came.
};
std::string_view to_string(RunEvent::Kind kind);

/// How often something took how long, in classes as Prometheus counts them.
struct DurationHistogram {
  /// Upper bounds, in seconds; the last class has none.
  static constexpr std::array<double, 14> kBounds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                                     1,     2.5,  5,     10,   30,  60,   300};
  std::array<std::uint64_t, kBounds.size() + 1> counts{};
  double sum_seconds = 0;

  void add(Duration took);
  std::uint64_t count() const;
};

/// Of all runs of a server since it began.
struct RunCounters {
  std::uint64_t runs_begun = 0;
  std::uint64_t runs_succeeded = 0;
  std::uint64_t runs_failed = 0;
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
  /// Notes an event, which gets its number here, and counts it. `now` never goes backwards.
  void add(RunEvent event, Instant now, RunCounters& counters);

  const std::deque<RunEvent>& events() const { return events_; }
  std::optional<std::uint64_t> last_number() const {
    return next_ == 1 ? std::nullopt : std::optional(next_ - 1);
  }
  /// The first failed worker, lost node or failed end since the run began.
  const std::optional<RunEvent>& first_failure() const { return first_failure_; }

 private:
  bool merge(const RunEvent& event, Instant now);

  std::deque<RunEvent> events_;
  std::optional<RunEvent> first_failure_;
  std::optional<Instant> restarts_since_;
  std::uint64_t next_ = 1;
};

}  // namespace muster
