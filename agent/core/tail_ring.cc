#include "agent/core/tail_ring.h"

#include <algorithm>

#include "agent/core/report_text.h"
#include "base/check.h"

namespace muster {

std::string_view last_lines(std::string_view text, TailLimits limits, bool is_whole) {
  if (limits.lines == 0 || limits.bytes == 0) return {};
  const std::string_view all = text;
  if (text.size() > limits.bytes) text.remove_prefix(text.size() - limits.bytes);

  // Goes back from the end, line by line. A newline at the very end belongs to the last line.
  std::size_t begin = text.size();
  for (std::size_t lines = 0; lines < limits.lines && begin > 0; ++lines) {
    const std::size_t newline = begin < 2 ? std::string_view::npos : text.rfind('\n', begin - 2);
    if (newline == std::string_view::npos) {
      const bool cut =
          text.size() < all.size() ? all[all.size() - text.size() - 1] != '\n' : !is_whole;
      if (!cut || begin == text.size()) begin = 0;
      break;
    }
    begin = newline + 1;
  }
  return text.substr(begin);
}

TailRing::TailRing(std::size_t capacity_bytes) : ring_(capacity_bytes, '\0') {
  MUSTER_CHECK(capacity_bytes > 0);
}

void TailRing::append(std::string_view bytes) {
  if (bytes.size() > ring_.size()) {
    bytes.remove_prefix(bytes.size() - ring_.size());
    overwritten_ = true;
  }
  if (size_ + bytes.size() > ring_.size()) overwritten_ = true;
  const std::size_t before_end = std::min(bytes.size(), ring_.size() - next_);
  std::copy_n(bytes.begin(), before_end, ring_.begin() + static_cast<std::ptrdiff_t>(next_));
  std::copy(bytes.begin() + static_cast<std::ptrdiff_t>(before_end), bytes.end(), ring_.begin());
  next_ = (next_ + bytes.size()) % ring_.size();
  size_ = std::min(size_ + bytes.size(), ring_.size());
}

std::string TailRing::text() const {
  if (size_ < ring_.size()) return ring_.substr(0, size_);
  return ring_.substr(next_) + ring_.substr(0, next_);
}

std::string TailRing::lines(TailLimits limits) const {
  return std::string(last_lines(without_frames(text()), limits, !overwritten_));
}

}  // namespace muster
