// The lines of many streams -> one console, on which no line stands inside another.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "agent/core/line_assembler.h"
#include "agent/core/log_plan.h"

namespace muster {

/// Remembers whose unfinished line the console ends with. Such a line goes on without a second
/// prefix if nothing came between; if something must, it is ended first, and what follows of it
/// gets a line and a prefix of its own.
class LineMerger {
 public:
  /// Appends to `out` what the console is to show. `stream` is not negative.
  void add(int stream, const LinePrefix& prefix, const LinePiece& piece, std::string_view time,
           std::string& out);
  /// Bytes of an untouched stream: as they are, except that they never go on with a stream's line.
  void add_verbatim(std::string_view bytes, std::string& out);
  /// Whole lines of muster's own: they begin on a line of their own, whatever came before.
  void add_own(std::string_view lines, std::string& out);

 private:
  static constexpr int kVerbatim = -1;
  std::optional<int> open_;  // The stream whose line has no newline yet.
};

}  // namespace muster
