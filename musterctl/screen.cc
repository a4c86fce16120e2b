#include "musterctl/screen.h"

#include <algorithm>
#include <vector>

#include "base/take_line.h"

namespace muster::ctl {
namespace {

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  lines.reserve(static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1);
  while (!text.empty())
    lines.push_back(take_line(text));
  return lines;
}

// The characters of a UTF-8 text: its bytes without those that continue a character.
std::size_t characters_of(std::string_view line) {
  return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::size_t rows_of(std::string_view line, std::size_t columns) {
  return std::max<std::size_t>(1, (characters_of(line) + columns - 1) / columns);
}

}  // namespace

std::string fit_screen(std::string_view text, Screen screen) {
  const std::vector<std::string_view> lines = lines_of(text);
  const std::size_t columns = std::max<std::size_t>(1, screen.columns);
  std::size_t needed = 0;
  for (const std::string_view line : lines)
    needed += rows_of(line, columns);
  const bool fits = needed <= screen.rows;
  const std::size_t room = fits ? needed : std::max<std::size_t>(1, screen.rows) - 1;
  std::string shown;
  std::size_t count = 0;
  for (std::size_t used = 0; count < lines.size(); ++count) {
    used += rows_of(lines[count], columns);
    if (used > room) break;
    shown += (count == 0 ? "" : "\n") + std::string(lines[count]);
  }
  if (fits) return shown;
  const std::size_t left_out = lines.size() - count;
  return shown + (count == 0 ? "" : "\n") + "(" + std::to_string(left_out) +
         (left_out == 1 ? " more line" : " more lines") + ": without --watch all are shown)";
}

}  // namespace muster::ctl
