// The names of signals, for people.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muster {

/// "SIGTERM" for 15, as Python's signal module names it; empty for a number without a name.
std::string signal_name(int number);

/// The number of a signal, by its name or by another name that Python has for it. Empty if the name
/// is unknown.
std::optional<int> signal_number(std::string_view name);

}  // namespace muster
