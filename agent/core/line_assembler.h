// Assembles the bytes of one stream into lines for the console.
//
// Pure: the time is an argument. A line is emitted when it ends. An unfinished line is emitted in
// pieces: when its stream has been quiet for a while, when the line has been held back for long,
// when it is too long to be held in memory, and at the end of the stream.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/time.h"

namespace muster {

struct LinePiece {
  std::string_view text;  // Without the newline. Valid during the call only.
  bool begins = true;     // False: continues the previous piece of this stream.
  bool ends = true;       // A newline follows.
};

class LineSink {
 public:
  virtual void append(const LinePiece& piece) = 0;

 protected:
  ~LineSink() = default;
};

struct LineLimits {
  std::size_t max_line_bytes = 4 << 20;  // A longer line is emitted in pieces of this size.
  /// An unfinished line is emitted after this time without a new byte.
  Duration quiet = std::chrono::milliseconds(250);
  /// An unfinished line is emitted after it was held back for this time.
  Duration hold = std::chrono::seconds(5);
};

/// A carriage return moves back to the beginning of the line, as on a terminal: progress bars
/// rewrite their line hundreds of times. Only the last state is emitted: at the newline, and, as a
/// line of its own, whenever `quiet` or `hold` is over. "\r\n" ends a line. All other bytes are
/// emitted unchanged and complete, whatever they are. The output does not depend on how the stream
/// was cut into feed() calls.
class LineAssembler {
 public:
  explicit LineAssembler(LineLimits limits = {});

  void feed(std::string_view bytes, Instant now, LineSink& sink);
  /// Emits the unfinished line if next_deadline() has passed.
  void on_time(Instant now, LineSink& sink);
  /// Tells the assembler that bytes wait to be fed, so that the stream does not count as quiet.
  void expect_more(Instant now);
  /// Emits the rest, with a newline, at the end of the stream.
  void finish(LineSink& sink);
  std::optional<Instant> next_deadline() const;

 private:
  void add(std::string_view bytes, Instant now, LineSink& sink);
  void add_plain(std::string_view bytes, Instant now, LineSink& sink);
  void end_line(LineSink& sink);
  void emit_unfinished(LineSink& sink);
  bool between_lines() const { return segment_.empty() && !continues_ && !returned_; }

  LineLimits limits_;
  std::string segment_;     // The part of the line since its last \r that is not emitted yet.
  bool continues_ = false;  // The beginning of the segment was already emitted.
  bool returned_ = false;   // A carriage return came: the next byte starts the line again.
  std::optional<Instant> held_since_;  // Set while segment_ is not empty.
  Instant last_byte_{};
};

}  // namespace muster
