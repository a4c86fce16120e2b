// Parses the command line by the rules of Python's argparse (CPython 3.11), with torchrun's
// options.
//
// Pure: the input is words and environment variables, the output is flags or a message. Intended
// differences from torchrun's parser (docs/compatibility.md): the parser never looks at the words
// after the script, so no option of the script can be "ambiguous"; an empty variable counts as not
// set; the variable of a switch may also be true, yes, on, false, no or off.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "launcher/flags.h"

namespace muster {

/// --help, --version and similar options: the caller prints the requested text and exits with 0.
struct EarlyExit {
  Prints what;
  std::string value;
};

/// The caller prints the usage, this message and the advice, and exits with 2.
struct UsageError {
  std::string message;      // As argparse words it.
  std::string advice = {};  // Empty: none.
};

using ParseOutcome = std::variant<Flags, EarlyExit, UsageError>;

struct ParseRequest {
  std::span<const std::string> words;  // Without the program's name.
  const Environment& environment;
  bool launch_module = false;  // As python -m torch.distributed.launch, which has --use-env.
};

ParseOutcome parse_command_line(const ParseRequest& request);

/// The index of the script in `words`, or words.size() if there is none. If "--" precedes the
/// script, the index of "--". The words before it must not contain an ambiguous option.
std::size_t script_position(std::span<const std::string> words, bool launch_module);

}  // namespace muster
