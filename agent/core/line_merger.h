// Merges the lines of many streams for one console, so that no line is printed inside another.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "agent/core/line_assembler.h"
#include "agent/core/log_plan.h"

namespace muster {

/// Remembers which stream's unfinished line is the last one on the console. If the next piece is of
/// the same stream, it continues that line without a second prefix. Otherwise the line is ended
/// first, and the rest of it later gets a line and a prefix of its own.
class LineMerger {
 public:
  /// A number for one more stream.
  int add_stream() { return streams_++; }
  /// Appends to `out` what the console must show. `stream` is the stream's number.
  void add(int stream, const LinePrefix& prefix, const LinePiece& piece, std::string_view time,
           std::string& out);
  /// Appends bytes of a stream that is copied unchanged. They never continue another stream's line.
  void add_verbatim(std::string_view bytes, std::string& out);
  /// Appends whole lines of muster's own, which always begin at the start of a line.
  void add_own(std::string_view lines, std::string& out);

 private:
  static constexpr int kVerbatim = -1;
  int streams_ = 0;
  std::optional<int> open_;  // The stream whose line has no newline yet.
};

}  // namespace muster
