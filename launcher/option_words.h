// What a word of the command line is by itself: an option, which one, or an argument.
//
// Pure. The rules are those of argparse's _parse_optional (CPython 3.11).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "launcher/option_table.h"

namespace muster {

/// What one word is, before its neighbours are looked at.
struct Word {
  enum class Kind : std::uint8_t { Positional, Known, Unknown, Ambiguous } kind = Kind::Positional;
  const Option* option = nullptr;
  std::string_view name;                     // The option's full name.
  std::optional<std::string_view> attached;  // After "=", or after a short option's letter.
  std::vector<std::string_view> candidates;
};

Word classify_word(std::string_view word, bool launch_module);
/// The option with exactly this name; null if there is none.
const Option* find_option(std::string_view name, bool launch_module);

}  // namespace muster
