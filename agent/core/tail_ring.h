// The end of a stream, in fixed memory.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster {

/// How much of a text last_lines() may return.
struct TailLimits {
  std::size_t lines = 20;
  std::size_t bytes = 4096;
};

/// The last whole lines of `text` within the limits, an unterminated last one included. A line that
/// alone is over the limit of bytes is cut at its front. `is_whole`: nothing came before `text`;
/// if not, its first line may have lost its beginning, and is given only if there is no other.
std::string_view last_lines(std::string_view text, TailLimits limits, bool is_whole);

class TailRing {
 public:
  explicit TailRing(std::size_t capacity_bytes);

  void append(std::string_view bytes);
  /// All that is kept, oldest first.
  std::string text() const;
  /// last_lines() of it.
  std::string lines(TailLimits limits) const;

 private:
  std::string ring_;          // Of the capacity, from the start: it never grows.
  std::size_t next_ = 0;      // Where the next byte goes.
  std::size_t size_ = 0;      // How much of the ring is in use.
  bool overwritten_ = false;  // Something has been lost at the front.
};

}  // namespace muster
