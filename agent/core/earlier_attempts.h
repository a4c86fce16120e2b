// Why each earlier attempt of the job failed, for the report at the end of the job.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/worker_end.h"

namespace muster {

/// The first cause of one attempt's failure, as one line.
struct AttemptCause {
  int attempt = 0;   // TORCHELASTIC_RESTART_COUNT of the attempt's workers.
  WorkerEnd end;     // The end of the worker that failed first.
  std::string text;  // The known cause: one line of at most kMaxCauseBytes.
};

inline constexpr std::size_t kMaxCauseBytes = 300;

/// The last line of `text` that is not blank, as a terminal would show it, limited to
/// kMaxCauseBytes.
std::string cause_line(std::string_view text);

/// Keeps the first and the last causes of a job with many attempts, and counts those in between.
class EarlierAttempts {
 public:
  static constexpr std::size_t kFirstKept = 10;
  static constexpr std::size_t kLastKept = 10;

  void add(AttemptCause cause);
  bool empty() const { return kept_.empty(); }
  std::size_t left_out() const { return left_out_; }
  const std::vector<AttemptCause>& kept() const { return kept_; }
  /// A text for people: a heading, and one line per cause. Empty if there was no earlier attempt.
  std::string text() const;

 private:
  std::vector<AttemptCause> kept_;
  std::size_t left_out_ = 0;  // The number of causes left out after the first kFirstKept.
};

}  // namespace muster
