// The log lines about the processes that muster ends, in torchrun's words, which scripts search
// for.
#pragma once

#include <optional>
#include <string>

namespace muster {

/// Writes one line for each of the first kMaxLines processes, and one line for all others together.
class StopLines {
 public:
  static constexpr int kMaxLines = 8;

  /// The log line after `signal` was sent to `pid`. Empty if an earlier line already counts this
  /// process. `alive`: the number of processes that are alive and belong to this stop.
  std::optional<std::string> line_for_signal(int pid, int signal, int alive);
  /// Begins another stop, of the same workers or of the next attempt's.
  void begin_stop() { lines_ = 0; }
  void begin_attempt() { signal_ = previous_signal_ = lines_ = 0; }

 private:
  int signal_ = 0;           // The signal that is being sent.
  int previous_signal_ = 0;  // The signal before it; 0: none.
  int lines_ = 0;
};

}  // namespace muster
