// Keeps the last bytes of a stream in a fixed amount of memory.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster {

/// The limits of what last_lines() returns.
struct TailLimits {
  std::size_t lines = 20;
  std::size_t bytes = 4096;
};

/// The last whole lines of `text` within the limits, including an unterminated last line. A line
/// that alone exceeds the limit of bytes is cut at its front. `is_whole`: nothing came before
/// `text`. If false, the first line of `text` may be incomplete, and is returned only if there is
/// no other line.
std::string_view last_lines(std::string_view text, TailLimits limits, bool is_whole);

class TailRing {
 public:
  explicit TailRing(std::size_t capacity_bytes);

  void append(std::string_view bytes);
  /// All bytes that are kept, the oldest first.
  std::string text() const;
  /// last_lines() of text() without frames (without_frames()), of which PyTorch writes dozens
  /// behind the cause.
  std::string lines(TailLimits limits) const;

 private:
  std::string ring_;          // Allocated with its full capacity: it never grows.
  std::size_t next_ = 0;      // The position of the next byte.
  std::size_t size_ = 0;      // The number of bytes in use.
  bool overwritten_ = false;  // The oldest bytes have been lost.
};

}  // namespace muster
