// Muster's own lines on the consoles. They can be held back until the workers' output before them
// is shown, and they are dropped and counted while nobody reads the console.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "agent/logs/log_consoles.h"
#include "agent/logs/log_mailbox.h"
#include "base/time.h"

namespace muster {

class MusterLines {
 public:
  /// The most text that waits here, and on a console in addition to kMaxUnwrittenBytes.
  static constexpr std::size_t kMaxBytes = 1 << 20;

  /// `consoles` must outlive this object.
  explicit MusterLines(LogConsoles& consoles) : consoles_(consoles) {}

  /// Appends the text to its console, or holds it.
  void print(OwnText own);
  /// Counts lines that were dropped elsewhere. The next line on stderr says how many.
  void count_dropped(std::size_t lines) { dropped_lines_ += lines; }

  /// Holds later lines until release(). The caller must call it at the latest of all deadlines.
  void hold_until(Instant deadline);
  /// When the hold ends; nothing: no line is held.
  std::optional<Instant> held_until() const { return held_until_; }
  /// Whether the hold goes on while worker's output is not shown yet. Time in which stderr has no
  /// room does not count: then the lines could not be written, either.
  bool must_hold(Instant now);
  void release();

  /// Prints how much was lost since the last call. There is only one try to write that.
  void print_losses();

 private:
  void print_now(const OwnText& own);

  LogConsoles& consoles_;
  std::optional<Instant> held_until_;
  std::vector<OwnText> held_;
  std::size_t held_bytes_ = 0;
  std::size_t dropped_lines_ = 0;  // Since the last notice.
};

}  // namespace muster
