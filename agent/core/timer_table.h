// The requests and deadlines of the file timer. With a timer, a worker asks to be killed unless it
// cancels the timer in time.
//
// Pure. The lines are those of torch.distributed.elastic.timer.FileTimerClient (PyTorch 2.13): one
// JSON object each, with pid, scope_id, expiration_time (seconds since the epoch; negative: the
// timer is cancelled) and signal.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/system/result.hpp>

#include "agent/core/watched_time.h"
#include "base/time.h"

namespace muster {

/// A client writes at most PIPE_BUF (4096) bytes and a newline.
inline constexpr std::size_t kMaxTimerLineBytes = 8192;
inline constexpr std::size_t kMaxTimers = 65536;

struct TimerRequest {
  int pid = 0;
  std::string scope;
  std::optional<double> expires_at_s;  // Since the epoch. Empty: the timer is cancelled.
  int signal = 0;                      // 0 and below: no process is killed.
};

/// Why a line is not a valid request: a text for people.
struct TimerLineDefect {
  std::string text;
};
boost::system::result<TimerRequest, TimerLineDefect> parse_timer_request(std::string_view line);

/// Splits the bytes of the pipe into lines. A line longer than kMaxTimerLineBytes is returned
/// truncated (just over that limit, so that the parser refuses it), and the rest of it is skipped:
/// memory stays bounded.
class TimerLines {
 public:
  std::vector<std::string> feed(std::string_view bytes);

 private:
  std::string partial_line_;
  bool skipping_ = false;  // Skips the rest of a line that is too long.
};

struct ExpiredTimer {
  int pid = 0;
  std::string scope;
  int signal = 0;
  bool operator==(const ExpiredTimer&) const = default;
};

class TimerTable {
 public:
  /// Sets or cancels a timer. The request arrived at `now`, when the wall clock showed
  /// `wall_now_s`. From then on the timer counts watched time only (watched_time.h): neither a
  /// change of the wall clock nor a pause of the machine makes it expire. False if the table is
  /// full (kMaxTimers).
  bool apply(const TimerRequest& request, Instant now, double wall_now_s);

  /// expire() must be called when the next timer ends, and at least this often while the table has
  /// a timer.
  static constexpr Duration kCheckInterval = std::chrono::seconds(1);
  std::optional<Instant> next_deadline() const;

  /// Returns one timer for every process that has an expired timer: the first to expire among those
  /// with a signal, or the first of all if none has a signal. All timers of that process are
  /// removed, as under torchrun.
  std::vector<ExpiredTimer> expire(Instant now);

  /// Removes all timers of one process.
  void remove(int pid);
  void clear();
  /// For a caller that wants to remove the timers of ended processes from a full table, and must
  /// look at all processes for that. True at most once per kCheckInterval: then the caller may.
  bool may_make_room(Instant now);
  /// The processes that have timers.
  std::vector<int> pids() const;

 private:
  struct Timer {
    Duration deadline{};  // Reached when counted_ is as large.
    int signal = 0;
  };
  void advance(Instant now);

  WatchedTime time_;
  Duration counted_{};  // The watched time since the first check.
  std::map<std::pair<int, std::string>, Timer> timers_;
  std::optional<Instant> room_made_;  // When may_make_room() last permitted it.
};

}  // namespace muster
