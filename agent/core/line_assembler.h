// Bytes of a stream -> lines for the console.
//
// Pure: the time is an argument. A line comes out when it ends. An unfinished one comes out in
// pieces: when its stream has been quiet for a while, when it has been held back for long, when it
// is too long to be held in memory, and at the end of the stream.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/core/time.h"

namespace muster {

struct LinePiece {
  std::string_view text;  // Without the newline; valid during the call only.
  bool begins = true;     // False: goes on where the last piece of this stream stopped.
  bool ends = true;       // A newline follows.
};

class LineSink {
 public:
  virtual void take(const LinePiece& piece) = 0;

 protected:
  ~LineSink() = default;
};

struct LineLimits {
  std::size_t max_line_bytes = 4 << 20;             // A longer line comes out in pieces of it.
  Duration quiet = std::chrono::milliseconds(250);  // No byte for so long: show what is there.
  Duration hold = std::chrono::seconds(5);          // Held back for so long: the same.
};

/// A carriage return takes the line back to its beginning, as on a terminal: progress bars rewrite
/// their line hundreds of times. Only the last state is shown: at the newline, and, as a line of
/// its own, whenever `quiet` or `hold` is over. "\r\n" ends a line. All other bytes come out
/// unchanged and complete, whatever they are. What comes out does not depend on how the stream was
/// cut into feed() calls.
class LineAssembler {
 public:
  explicit LineAssembler(LineLimits limits = {});

  void feed(std::string_view bytes, Instant now, LineSink& sink);
  /// Emits what next_deadline() stood for, if it is over.
  void on_time(Instant now, LineSink& sink);
  /// Bytes are there that have not been fed yet: the stream is not quiet.
  void expect_more(Instant now);
  /// The stream has ended: what is left comes out, with a newline.
  void finish(LineSink& sink);
  std::optional<Instant> next_deadline() const;

 private:
  void add(std::string_view bytes, Instant now, LineSink& sink);
  void add_plain(std::string_view bytes, Instant now, LineSink& sink);
  void end_line(LineSink& sink);
  void emit_unfinished(LineSink& sink);
  bool between_lines() const { return segment_.empty() && !continues_ && !returned_; }

  LineLimits limits_;
  std::string segment_;     // Of the line since its last carriage return: what is not out yet.
  bool continues_ = false;  // The beginning of the segment is out.
  bool returned_ = false;   // A carriage return came; the next byte begins the line anew.
  std::optional<Instant> held_since_;  // Set while segment_ is not empty.
  Instant last_byte_{};
};

}  // namespace muster
