// Signals by name, for people.
#pragma once

#include <string>

namespace muster {

/// "SIGTERM" for 15, as Python's signal module names it; empty for a number without a name.
std::string signal_name(int number);

}  // namespace muster
