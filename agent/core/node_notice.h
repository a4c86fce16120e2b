// How this node learns that it will go: the lines of the program of --notice-from, the signals of
// --notice-signals, and how much of the time that is left belongs to the workers.
//
// Pure. docs/preemption.md describes both.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/time.h"

namespace muster {

/// This node goes when `left` is over.
struct NodeGoes {
  Duration left{};
  std::string reason;
  friend bool operator==(const NodeGoes&, const NodeGoes&) = default;
};

/// The longest time of a notice. A longer one is an error of the program or of the user.
inline constexpr Duration kMaxNoticeTime = std::chrono::hours(24 * 7);

/// The time from now until muster begins to stop workers that have not answered: the node must be
/// empty when it goes, and a stop may take `stop_timeout`. Workers have at least one half of what
/// is left.
constexpr Duration until_stop(Duration left, Duration stop_timeout) {
  return left - std::min(stop_timeout, left / 2);
}

/// Reads "SECONDS" or "SECONDS REASON" from the start of `line`. Nothing if that does not stand
/// there, or if the time is longer than kMaxNoticeTime.
std::optional<NodeGoes> read_notice_line(std::string_view line);

/// Reads what the program writes to its stdout. The result does not depend on how the bytes were
/// cut into pieces.
class NoticeProgramLines {
 public:
  static constexpr std::size_t kMaxLineBytes = 1024;
  static constexpr int kMaxProblems = 3;  // More of them would fill the log.

  struct Found {
    std::optional<NodeGoes> notice;
    /// If not empty: a line that was not understood, to be logged.
    std::string problem;
  };

  /// Adds received bytes. Call next() until it returns nothing.
  void add(std::string_view bytes);
  /// The end of the output: a last line needs no newline.
  void end();
  std::optional<Found> next();

 private:
  std::optional<Found> read(std::string_view line);
  std::string buffer_;
  bool skips_ = false;  // The rest of a line that is too long.
  int problems_ = 0;
};

/// How long to wait before the program is started again, after it has failed so often in a row.
Duration pause_before_restart(int failures);

/// A program that has run for so long before it failed counts as healthy: its failure is the first.
inline constexpr Duration kHealthyRun = std::chrono::minutes(10);

}  // namespace muster
