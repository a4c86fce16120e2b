#include "musterctl/process_texts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

namespace muster::ctl {
namespace {

constexpr std::size_t kMaxShownWord = 200;

template <typename Number>
Number number_or_zero(std::string_view text) {
  Number number{};
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() ? number : Number{};
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::string shortened(std::string_view word) {
  return std::string(word.substr(0, kMaxShownWord)) + (word.size() > kMaxShownWord ? "..." : "");
}

enum class Interpreter { None, Shell, Python };

Interpreter interpreter_of(std::string_view program) {
  const std::string_view name = program.substr(program.rfind('/') + 1);  // npos + 1 is 0.
  // "python3.11", "pypy3"
  if (name.starts_with("python") || name.starts_with("pypy")) return Interpreter::Python;
  constexpr std::array<std::string_view, 5> kShells = {"sh", "bash", "dash", "zsh", "ksh"};
  return std::find(kShells.begin(), kShells.end(), name) == kShells.end() ? Interpreter::None
                                                                          : Interpreter::Shell;
}

/// The script that Python runs: "train.py", "-m train" or "-c"; empty: Python reads its stdin.
std::string python_script(const std::vector<std::string_view>& words) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (!word.starts_with('-')) return shortened(word);
    if (word == "-" || word == "--") return {};
    if (word.starts_with("--")) {
      if (word == "--check-hash-based-pycs") ++i;
      continue;
    }
    // One word may have several option letters. The text after c, m, W or X is that option's value;
    // if there is none, the value is the next word.
    const std::size_t letter = word.find_first_of("cmWX", 1);
    if (letter == std::string_view::npos) continue;
    const bool apart = letter + 1 == word.size();
    if (word[letter] == 'c') return "-c";
    if (word[letter] == 'm')
      return "-m " +
             shortened(apart ? i + 1 < words.size() ? words[i + 1] : "" : word.substr(letter + 1));
    if (apart) ++i;
  }
  return {};
}

}  // namespace

// proc(5): the name is in parentheses and may contain any character.
std::optional<StatFields> parse_stat_fields(std::string_view text) {
  const std::size_t open = text.find('(');
  const std::size_t close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open)
    return std::nullopt;
  std::string_view rest = text.substr(close + 1);
  if (rest.starts_with(' ')) rest.remove_prefix(1);
  const std::vector<std::string_view> fields = split(rest, ' ');
  constexpr std::size_t kState = 0, kParent = 1, kSession = 3, kUser = 11, kSystem = 12, kRss = 21;
  if (fields.size() <= kRss || fields[kState] == "Z") return std::nullopt;
  return StatFields{
      .name = std::string(text.substr(open + 1, close - open - 1)),
      .parent = number_or_zero<int>(fields[kParent]),
      .session = number_or_zero<int>(fields[kSession]),
      .cpu_ticks = static_cast<double>(number_or_zero<std::uint64_t>(fields[kUser])) +
                   static_cast<double>(number_or_zero<std::uint64_t>(fields[kSystem])),
      .resident_pages = number_or_zero<std::uint64_t>(fields[kRss])};
}

std::optional<MemoryShares> parse_memory_shares(std::string_view text) {
  MemoryShares shares;
  bool is_found = false;
  for (const std::string_view line : split(text, '\n')) {
    const std::size_t colon = std::min(line.find(':'), line.size());
    const std::string_view name = line.substr(0, colon);
    std::string_view value = line.substr(std::min(colon + 1, line.size()));
    value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
    if (value.ends_with(" kB")) value.remove_suffix(3);
    const std::uint64_t bytes = number_or_zero<std::uint64_t>(value) * 1024;
    is_found |= name == "Pss";
    if (name == "Pss") shares.proportional_bytes = bytes;
    if (name == "Private_Clean" || name == "Private_Dirty") shares.own_bytes += bytes;
  }
  if (!is_found) return std::nullopt;
  return shares;
}

Environment parse_environment(std::string_view text) {
  Environment variables;
  for (const std::string_view one : split(text, '\0'))
    if (const std::size_t equals = one.find('='); equals != std::string_view::npos)
      variables.emplace(one.substr(0, equals), one.substr(equals + 1));
  return variables;
}

std::string command_text(std::string_view cmdline) {
  const std::vector<std::string_view> words = split(cmdline, '\0');
  if (words.empty()) return {};
  std::string script;
  switch (interpreter_of(words[0])) {
    case Interpreter::None:
      break;
    case Interpreter::Python:
      script = python_script(words);
      break;
    case Interpreter::Shell:  // After an option, the next word may be code.
      if (words.size() > 1 && !words[1].starts_with('-') && !words[1].starts_with('+'))
        script = shortened(words[1]);
      break;
  }
  return shortened(words[0]) + (script.empty() ? "" : " ") + script;
}

}  // namespace muster::ctl
