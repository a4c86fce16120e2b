// Completion scripts of musterctl for shells.
#pragma once

#include <string>
#include <string_view>

namespace muster::ctl {

struct Subcommand {
  std::string_view name;
  std::string_view arguments;  // "RUN", "[RUN]": it may be left out; empty: none.
  std::string_view options;    // With blanks between them.
  std::string_view help;
};
/// All of them, the hidden ones aside: what main() offers is tested to be the same.
extern const Subcommand kSubcommands[15];

/// The options of a subcommand, those of TLS included where it asks musterd.
std::string options_of(const Subcommand& command);

/// For "bash", "zsh" or "fish"; empty for another shell.
std::string completion_script(std::string_view shell);

}  // namespace muster::ctl
