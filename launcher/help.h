// What muster says about itself: usage, --help, --version, completion scripts, the manual page, all
// from the option table.
//
// Pure: texts out, nothing printed.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/argparse.h"
#include "launcher/flags.h"
#include "launcher/option_table.h"

namespace muster {

/// "usage: torchrun [options] training_script ...", one line.
std::string usage_line(const ProgramName& program);
/// What goes to stderr before muster ends with 2: the usage, and "torchrun: error: ...".
std::string usage_error_text(const ProgramName& program, std::string_view message);
/// --help, for a terminal so many columns wide.
std::string help_text(const ProgramName& program, int columns);
/// --version: "muster 0.1.0", and what it was built from (rendezvous/core/build_info.h).
std::string version_text();
/// For "bash", "zsh" or "fish"; to be evaluated by that shell, or put where it looks for them.
std::string completion_script(std::string_view shell);
/// The manual page, in man(7)'s language. docs/muster.1 is a copy; a test says when it is old.
std::string man_page();
/// What an EarlyExit asks for.
std::string early_exit_text(const EarlyExit& early, const ProgramName& program, int columns);

/// A group's heading; the groups that have one are OptionGroup's values before Hidden.
std::string_view heading(OptionGroup group);
/// "-r, --redirects STREAMS".
std::string option_head(const Option& option);
/// "[PET_NNODES, default 1:1]", or a part of it, or nothing.
std::string default_and_variable(const Option& option);
/// Words of `text` in lines of at most `columns`.
std::vector<std::string> wrap(std::string_view text, std::size_t columns);

}  // namespace muster
