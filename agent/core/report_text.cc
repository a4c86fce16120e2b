#include "agent/core/report_text.h"

#include <algorithm>

namespace muster {

std::int64_t floor_s(std::int64_t ms) {
  return ms / 1000 - (ms % 1000 < 0 ? 1 : 0);
}

std::size_t widest_line(std::string_view text) {
  std::size_t widest = 0;
  std::size_t width = 0;
  for (const char c : text) {
    if ((c & 0xc0) != 0x80) ++width;
    if (c == '\n') width = 0;
    widest = std::max(widest, width);
  }
  return widest;
}

std::string indented(std::string_view text) {
  std::string result;
  for (const char c : text) {
    result += c;
    if (c == '\n') result += "  ";
  }
  return result;
}

std::string presentable(std::string_view tail) {
  std::string result;
  while (!tail.empty()) {
    const std::size_t newline = tail.find('\n');
    std::string_view line = tail.substr(0, newline);
    while (!line.empty() && line.back() == '\r')
      line.remove_suffix(1);
    if (const std::size_t back = line.rfind('\r'); back != std::string_view::npos)
      line.remove_prefix(back + 1);
    result += "\n";
    for (const char c : line)
      result += (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f ? '?' : c;
    tail.remove_prefix(newline == std::string_view::npos ? tail.size() : newline + 1);
  }
  return result;
}

}  // namespace muster
