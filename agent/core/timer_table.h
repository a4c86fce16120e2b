// The file timer's requests and deadlines: a worker says "kill me unless I call this off in time".
//
// Pure. The lines are those of torch.distributed.elastic.timer.FileTimerClient (PyTorch 2.13): one
// object of JSON each, with pid, scope_id, expiration_time (seconds since the epoch, negative:
// called off) and signal.
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
#include "rendezvous/core/time.h"

namespace muster {

/// A client writes at most PIPE_BUF (4096) bytes and a newline.
inline constexpr std::size_t kMaxTimerLineBytes = 8192;
inline constexpr std::size_t kMaxTimers = 65536;

struct TimerRequest {
  int pid = 0;
  std::string scope;
  std::optional<double> expires_at_s;  // Since the epoch; nothing: called off.
  int signal = 0;                      // 0 and below: nobody is to be killed.
};

/// Why a line is none, for people.
struct TimerLineDefect {
  std::string text;
};
boost::system::result<TimerRequest, TimerLineDefect> parse_timer_request(std::string_view line);

/// Bytes of the pipe to lines. A line that is longer than kMaxTimerLineBytes comes out cut off
/// there, so that it is seen and no memory is lost to it.
class TimerLines {
 public:
  std::vector<std::string> take(std::string_view bytes);

 private:
  std::string begun_;
  bool skipping_ = false;  // The rest of a line that is too long.
};

struct ExpiredTimer {
  int pid = 0;
  std::string scope;
  int signal = 0;
  bool operator==(const ExpiredTimer&) const = default;
};

class TimerTable {
 public:
  /// A request that arrived at `now`, when the wall clock said `wall_now_s`: from here on only time
  /// counts that passes while somebody looks, not what happens to the clock on the wall, nor a
  /// pause of the whole machine. False: it is one too many.
  bool take(const TimerRequest& request, Instant now, double wall_now_s);

  /// When to call expire(): at the next timer's end, and at least this often while there is one.
  static constexpr Duration kLookInterval = std::chrono::seconds(1);
  std::optional<Instant> next_deadline() const;

  /// For every process with a timer that has run out: of those timers the first with a signal, or
  /// the first if none has one. All timers of that process are gone then, as under torchrun.
  std::vector<ExpiredTimer> expire(Instant now);

  void forget(int pid);
  void clear();
  std::vector<int> pids() const;

 private:
  struct Timer {
    Duration deadline{};  // Of counted_.
    int signal = 0;
  };
  void look(Instant now);

  WatchedTime time_;
  Duration counted_{};  // Since the first look.
  std::map<std::pair<int, std::string>, Timer> timers_;
};

}  // namespace muster
