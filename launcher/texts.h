// The help, the completion scripts and the manual page, made from the option table. The build runs
// the program make_texts, which writes them to files; muster contains the help and the scripts as
// they were written (help.h).
//
// Pure: the functions return texts.
#pragma once

#include <string>
#include <string_view>

#include "launcher/option_table.h"

namespace muster {

/// The text of --help without the usage, for muster or for muster-launch. help_text() in help.h
/// fits it to a terminal: each paragraph is one line, a heading ends with a colon, and a tab
/// separates an option from its explanation.
std::string make_help(bool launch_module);
/// The completion script for "bash", "zsh", "fish" or "tcsh". The shell evaluates it, or loads it
/// from its folder of completion scripts.
std::string make_completion(std::string_view shell);
/// The manual page in the format of man(7).
std::string make_man_page();

/// The heading of a group.
std::string_view heading(OptionGroup group);
/// "-r, --redirects STREAMS".
std::string option_head(const Option& option);
/// "[PET_NNODES, default 1:1]", without the part that the option does not have; empty: it has
/// neither.
std::string default_and_variable(const Option& option);

}  // namespace muster
