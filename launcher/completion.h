// Completion scripts for shells, from the option table.
#pragma once

#include <string>
#include <string_view>

namespace muster {

/// For "bash", "zsh" or "fish"; to be evaluated by that shell, or put where it looks for them.
std::string completion_script(std::string_view shell);

}  // namespace muster
