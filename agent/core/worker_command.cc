#include "agent/core/worker_command.h"

#include <algorithm>

#include "agent/core/string_template.h"
#include "rendezvous/core/check.h"

namespace muster {

std::vector<std::string> worker_command(const AgentOptions& options, LocalRank local_rank) {
  MUSTER_CHECK(!options.command.empty());
  const std::string rank = std::to_string(local_rank.value);
  const TemplateValues values = {{"local_rank", rank}};

  std::vector<std::string> argv = options.command;
  for (std::size_t i = options.first_argument; i < argv.size(); ++i)
    argv[i] = safe_substitute(argv[i], values);
  if (options.local_rank_argument_at) {
    const std::size_t at = *options.local_rank_argument_at;
    MUSTER_CHECK(at <= argv.size());
    argv.insert(argv.begin() + static_cast<std::ptrdiff_t>(at), "--local-rank=" + rank);
  }
  return argv;
}

std::string shown_command(const AgentOptions& options) {
  const std::vector<std::string>& words = options.command;
  // Shows the words up to the script, module or program. If that is not a separate word, shows only
  // the program.
  const auto script = std::find(words.begin(), words.end(), options.entry_point);
  const auto end = script == words.end() ? words.begin() + 1 : script + 1;
  std::string text;
  for (auto word = words.begin(); word != end; ++word)
    text.append(text.empty() ? "" : " ").append(*word);
  const auto hidden = words.end() - end;
  if (hidden == 0) return text;
  return text + " (and " + std::to_string(hidden) + (hidden == 1 ? " argument)" : " arguments)");
}

std::string failed_program_text(const AgentOptions& options) {
  if (!options.runs_path || options.first_argument >= options.command.size())
    return "of binary: " + options.command[0];
  // The script is the first word after muster's own small program.
  return "of fn: " + options.entry_point + " (" + options.command[options.first_argument] + ")";
}

}  // namespace muster
