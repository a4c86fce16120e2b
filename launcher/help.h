// The texts that muster prints about itself: usage, --help, --version and completion scripts.
//
// Pure: the functions return texts and print nothing. The help and the completion scripts were made
// when muster was built (texts.h): this code only fits the help to the terminal.
#pragma once

#include <string>
#include <string_view>

#include "launcher/argparse.h"
#include "launcher/flags.h"

namespace muster {

/// "usage: torchrun [options] training_script ...", one line.
std::string usage_line(const ProgramName& program);
/// The text for stderr before muster exits with 2: the usage, "torchrun: error: ...", and what to
/// do.
std::string usage_error_text(const ProgramName& program, const UsageError& error);
/// The text of --help for a terminal of this width.
std::string help_text(const ProgramName& program, int columns);
/// The text of --version: "muster 0.1.0", and what it was built from
/// (base/build_info.h).
std::string version_text();
/// The completion script for "bash", "zsh", "fish" or "tcsh".
std::string_view completion_script(std::string_view shell);
/// The file of configs/ for "slurm", "kubernetes", "docker" or "systemd".
std::string_view recipe(std::string_view system);
/// The text that an EarlyExit requests.
std::string early_exit_text(const EarlyExit& early, const ProgramName& program, int columns);

}  // namespace muster
