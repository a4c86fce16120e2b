// Why each earlier attempt of the job failed: for the report at the job's end.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/worker_end.h"

namespace muster {

/// The first cause of one attempt, in a line.
struct AttemptCause {
  int attempt = 0;   // TORCHELASTIC_RESTART_COUNT of its workers.
  WorkerEnd end;     // Of the worker that failed first.
  std::string text;  // What is known of it: one line, at most kMaxCauseBytes.
};

inline constexpr std::size_t kMaxCauseBytes = 300;

/// The last line of `text` with something in it, as a terminal would show it and short enough.
std::string cause_line(std::string_view text);

/// Keeps the first and the last causes of a job with many attempts, and counts the others.
class EarlierAttempts {
 public:
  static constexpr std::size_t kFirstKept = 10;
  static constexpr std::size_t kLastKept = 10;

  void add(AttemptCause cause);
  bool empty() const { return first_.empty(); }
  std::size_t left_out() const { return left_out_; }
  std::vector<AttemptCause> kept() const;
  /// For people: a heading and one line for each; empty if there was no earlier attempt.
  std::string text() const;

 private:
  std::vector<AttemptCause> first_;
  std::deque<AttemptCause> last_;
  std::size_t left_out_ = 0;  // Between these.
};

}  // namespace muster
