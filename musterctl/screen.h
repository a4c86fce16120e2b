// What --watch shows on a terminal. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster::ctl {

/// The size of a terminal, in characters.
struct Screen {
  std::size_t rows = 24;
  std::size_t columns = 80;
};

/// As many lines from the begin of `text` as the screen shows at once, long ones wrapped by the
/// terminal. If that is not all, the last line says how many are left out. There is no line feed at
/// the end: it would scroll the first line away.
std::string fit_screen(std::string_view text, Screen screen);

}  // namespace muster::ctl
