// Completion scripts of musterctl for shells.
#pragma once

#include <string>
#include <string_view>

namespace muster::ctl {

struct Subcommand {
  std::string_view name;
  std::string_view arguments;  // "RUN", or "[RUN]" if it is optional; empty: none.
  std::string_view options;    // Separated by blanks.
  std::string_view help;
};
/// All subcommands except hidden ones. main() offers exactly these.
extern const Subcommand kSubcommands[15];

/// The hidden subcommand that prints the runs, or with a run its nodes.
inline constexpr std::string_view kCompletionWords = "completion-words";

/// The options of a subcommand, including those of TLS if it connects to musterd.
std::string options_of(const Subcommand& command);

/// The script for "bash", "zsh", "fish" or "tcsh"; empty for another shell.
std::string completion_script(std::string_view shell);

}  // namespace muster::ctl
