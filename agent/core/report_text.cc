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

namespace {

/// Whether the line is "frame #N: ...", also behind blanks and torch's "[rank0]: ".
bool is_frame(std::string_view line) {
  if (line.starts_with("[rank"))
    if (const std::size_t end = line.find("]:"); end != std::string_view::npos)
      line.remove_prefix(end + 2);
  line.remove_prefix(std::min(line.size(), line.find_first_not_of(" \t")));
  constexpr std::string_view kFrame = "frame #";
  if (!line.starts_with(kFrame)) return false;
  line.remove_prefix(kFrame.size());
  const std::size_t colon = line.find_first_not_of("0123456789");
  return colon != std::string_view::npos && colon > 0 && line[colon] == ':';
}

}  // namespace

std::string without_rank_prefixes(std::string_view text) {
  constexpr std::string_view kBegin = "[rank";
  std::string kept;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    std::string_view line = text.substr(0, end);
    if (line.starts_with(kBegin)) {
      const std::size_t after = line.find_first_not_of("0123456789", kBegin.size());
      if (after != line.npos && line.substr(after).starts_with("]:")) line.remove_prefix(after + 2);
    }
    kept += line;
    text.remove_prefix(end);
  }
  return kept;
}

std::string with_red_last_line(std::string_view text) {
  const std::size_t last = text.find_last_not_of(" \n");
  if (last == text.npos) return std::string(text);
  const std::size_t newline = text.rfind('\n', last);
  const std::size_t begin = text.find_first_not_of(' ', newline == text.npos ? 0 : newline + 1);
  return std::string(text.substr(0, begin))
      .append("\033[1;31m")
      .append(text.substr(begin, last + 1 - begin))
      .append("\033[0m")
      .append(text.substr(last + 1));
}

std::string without_frames(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t newline = text.find('\n');
    const std::size_t size = newline == std::string_view::npos ? text.size() : newline + 1;
    if (!is_frame(text.substr(0, size))) result.append(text.substr(0, size));
    text.remove_prefix(size);
  }
  return result;
}

}  // namespace muster
