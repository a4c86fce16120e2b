#include "agent/core/strict_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <optional>
#include <system_error>

namespace muster {
namespace {

constexpr std::size_t kEscapeBytes = 6;  // \udce9
constexpr std::array<std::string_view, 3> kNoNumbers{"NaN", "Infinity", "-Infinity"};

/// The code unit of an escape at the beginning of the text; nothing if there is no such escape.
std::optional<unsigned> escaped_unit(std::string_view text) {
  if (text.size() < kEscapeBytes || !text.starts_with("\\u")) return std::nullopt;
  unsigned unit = 0;
  const char* const end = text.data() + kEscapeBytes;
  const auto [stopped, failure] = std::from_chars(text.data() + 2, end, unit, 16);
  if (failure != std::errc{} || stopped != end) return std::nullopt;
  return unit;
}

bool is_high(std::optional<unsigned> unit) {
  return unit && *unit >= 0xd800 && *unit < 0xdc00;
}

bool is_low(std::optional<unsigned> unit) {
  return unit && *unit >= 0xdc00 && *unit < 0xe000;
}

class Rewriter {
 public:
  explicit Rewriter(std::string_view text) : left_(text) {}

  std::string run() {
    while (!left_.empty())
      in_string_ ? step_in_string() : step_outside();
    return std::move(result_);
  }

 private:
  void step_in_string() {
    if (left_[0] == '"') in_string_ = false;
    if (left_[0] != '\\') return copy(1);
    const auto unit = escaped_unit(left_);
    if (is_high(unit) && is_low(escaped_unit(left_.substr(kEscapeBytes))))
      return copy(2 * kEscapeBytes);
    if (is_high(unit) || is_low(unit)) return replace(kEscapeBytes, "\\ufffd");
    copy(2);
  }

  void step_outside() {
    if (left_[0] == '"') in_string_ = true;
    for (const std::string_view word : kNoNumbers)
      if (left_.starts_with(word)) return replace(word.size(), "null");
    const std::size_t size = std::min(left_.find_first_not_of("+-.0123456789eE"), left_.size());
    if (size == 0) return copy(1);
    double number = 0;
    const char* const begin = left_.data();
    const bool fits =
        std::from_chars(begin, begin + size, number).ec != std::errc::result_out_of_range;
    fits ? copy(size) : replace(size, "null");
  }

  void copy(std::size_t bytes) { replace(bytes, left_.substr(0, bytes)); }

  void replace(std::size_t bytes, std::string_view by) {
    result_ += by;
    left_.remove_prefix(std::min(bytes, left_.size()));
  }

  std::string_view left_;
  std::string result_;
  bool in_string_ = false;
};

}  // namespace

std::string strict_json(std::string_view text) {
  return Rewriter(text).run();
}

}  // namespace muster
