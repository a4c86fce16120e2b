#include "agent/core/worker_command.h"

#include <algorithm>
#include <cstdint>

#include "agent/core/string_template.h"
#include "base/check.h"
#include "base/hex.h"

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

std::string command_digest(const AgentOptions& options) {
  const std::vector<std::string>& words = options.command;
  auto word = std::find(words.begin(), words.end(), options.entry_point);
  if (word == words.end()) word = words.begin();
  std::uint64_t digest = 0xcbf29ce484222325ULL;  // FNV-1a.
  const auto add = [&digest](unsigned char byte) { digest = (digest ^ byte) * 0x100000001b3ULL; };
  for (; word != words.end(); ++word) {
    for (const char c : *word)
      add(static_cast<unsigned char>(c));
    add(0);  // No word contains it.
  }
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8)
    bytes += static_cast<char>(digest >> shift & 0xff);
  return to_hex(bytes);
}

std::string failed_program_text(const AgentOptions& options) {
  if (!options.runs_path || options.first_argument >= options.command.size())
    return "of binary: " + options.command[0];
  // The script is the first word after muster's own small program.
  return "of fn: " + options.entry_point + " (" + options.command[options.first_argument] + ")";
}

}  // namespace muster
