// The command line, read by the rules of Python's argparse (CPython 3.11) with torchrun's parser.
//
// Pure: words and variables in, flags or a message out. On purpose different from torchrun's
// parser, see docs/compatibility.md: what stands after the script is never looked at, so no option
// of the script can be "ambiguous"; an empty variable counts as not set; switches' variables may
// say true, yes, on, false, no and off.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "launcher/flags.h"

namespace muster {

/// --help, --version and the like: print that and end with 0.
struct EarlyExit {
  OptionId option;
  std::string value;
};

/// Print the usage and this message, and end with 2.
struct UsageError {
  std::string message;
};

using ParseOutcome = std::variant<Flags, EarlyExit, UsageError>;

struct ParseRequest {
  std::span<const std::string> words;  // Without the program's name.
  const Environment& environment;
  bool launch_module = false;  // As python -m torch.distributed.launch, with --use-env.
};

ParseOutcome parse_command_line(const ParseRequest& request);

/// Where the script stands among the words, or their number when there is none. "--" in front of it
/// counts as the script's place. Only for words without an ambiguous option before that.
std::size_t script_position(std::span<const std::string> words, bool launch_module);

}  // namespace muster
