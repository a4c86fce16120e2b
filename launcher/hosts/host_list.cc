#include "launcher/hosts/host_list.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/printable_text.h"
#include "base/python_text.h"
#include "base/whole_number.h"

namespace muster {
namespace {

constexpr std::size_t kMaxTargetBytes = 320;  // A user, and a name of 253 characters.

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

/// What is wrong with what ssh gets as its host; empty: nothing.
std::string problem_of(std::string_view target) {
  if (target.empty()) return "the name is empty";
  if (target.size() > kMaxTargetBytes) return "the name is too long";
  if (target.front() == '-') return "a name does not begin with a hyphen";
  std::string_view name = target;
  if (const auto at = target.find('@'); at != std::string_view::npos) {
    const std::string_view user = target.substr(0, at);
    name.remove_prefix(at + 1);
    if (user.empty() || name.empty()) return "it is USER@HOST with one of the two missing";
    if (!std::all_of(user.begin(), user.end(), is_word_character))
      return "the user has characters that a user's name does not have";
    if (name.front() == '-') return "a name does not begin with a hyphen";
  }
  // Addresses of IPv6 have colons, and a percent sign before their scope.
  const bool is_address = std::count(name.begin(), name.end(), ':') > 1;
  for (const char c : name)
    if (!is_word_character(c) && !(is_address && (c == ':' || c == '%')))
      return "it has characters that a host's name does not have";
  return {};
}

Checked<int> parse_slots(std::string_view text, const std::string& where) {
  const auto slots = whole_number<int>(text);
  if (!slots || *slots < 1 || *slots > kMaxSlots)
    return FlagError{where + ": '" + printable_text(text, 64) +
                     "' is no number of workers: give a whole number from 1 to " +
                     std::to_string(kMaxSlots)};
  return *slots;
}

/// "a", "a:8", "me@a:8", "fd00::1" or "[fd00::1]:8".
Checked<JobHost> parse_host(std::string_view word, const std::string& where) {
  JobHost host;
  std::string_view target = word;
  std::optional<std::string_view> slots;
  const auto bracket = word.find('[');
  const auto closing = word.find(']');
  if (bracket != std::string_view::npos && closing != std::string_view::npos && bracket < closing) {
    host.target = word.substr(0, bracket);
    host.target += word.substr(bracket + 1, closing - bracket - 1);
    target = host.target;
    const std::string_view rest = word.substr(closing + 1);
    if (rest.starts_with(':'))
      slots = rest.substr(1);
    else if (!rest.empty())
      return FlagError{where + ": '" + printable_text(word, 128) +
                       "' is no host: give [ADDRESS]:WORKERS"};
  } else if (std::count(word.begin(), word.end(), ':') == 1) {
    target = word.substr(0, word.find(':'));
    slots = word.substr(word.find(':') + 1);
  }
  if (const std::string problem = problem_of(target); !problem.empty())
    return FlagError{where + ": '" + printable_text(word, 128) + "' is no host: " + problem};
  host.target = std::string(target);
  if (!slots) return host;
  const auto count = parse_slots(*slots, where + ": " + host.target);
  if (!count) return count.error();
  host.slots = *count;
  return host;
}

/// Adds the host, which must be a new one.
Checked<void> add(JobHost host, std::vector<JobHost>& hosts, std::set<std::string>& names,
                  const std::string& where) {
  if (!names.insert(host.target).second)
    return FlagError{where + ": " + host.target +
                     " stands there twice: give each host once, with the number of its workers"};
  if (hosts.size() == kMaxJobHosts)
    return FlagError{where + ": there are more than " + std::to_string(kMaxJobHosts) +
                     " hosts, each with an ssh of this machine: use a scheduler (--cluster)"};
  hosts.push_back(std::move(host));
  return {};
}

/// The next word of a line. Removes it.
std::string_view next_word(std::string_view& line) {
  constexpr std::string_view kBlanks = " \t\r\v\f";
  const auto begin = std::min(line.find_first_not_of(kBlanks), line.size());
  line.remove_prefix(begin);
  const std::string_view word = line.substr(0, line.find_first_of(kBlanks));
  line.remove_prefix(word.size());
  return word;
}

}  // namespace

std::string JobHost::name() const {
  const auto at = target.find('@');
  return at == std::string::npos ? target : target.substr(at + 1);
}

Checked<std::vector<JobHost>> parse_hosts(std::string_view text, const std::string& flag) {
  std::vector<JobHost> hosts;
  std::set<std::string> names;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string_view word = strip(text.substr(at, end - at));
    at = end + 1;
    auto host = parse_host(word, flag);
    if (!host) return host.error();
    if (const auto done = add(*std::move(host), hosts, names, flag); !done) return done.error();
  }
  return hosts;
}

Checked<std::vector<JobHost>> parse_hostfile(std::string_view text, const std::string& file) {
  std::vector<JobHost> hosts;
  std::set<std::string> names;
  int number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    const std::string where = file + ", line " + std::to_string(++number);
    line = line.substr(0, line.find('#'));
    const std::string_view word = next_word(line);
    if (word.empty()) continue;
    auto host = parse_host(word, where);
    if (!host) return host.error();
    for (std::string_view more = next_word(line); !more.empty(); more = next_word(line)) {
      if (!more.starts_with("slots="))
        return FlagError{where + ": '" + printable_text(more, 64) +
                         "' is not understood: a line is HOST, HOST:WORKERS or HOST slots=WORKERS"};
      const auto slots = parse_slots(more.substr(more.find('=') + 1), where);
      if (!slots) return slots.error();
      if (host->slots.value_or(*slots) != *slots)
        return FlagError{where + ": it has two numbers of workers"};
      host->slots = *slots;
    }
    if (const auto done = add(*std::move(host), hosts, names, where); !done) return done.error();
  }
  if (hosts.empty()) return FlagError{file + " names no host"};
  return hosts;
}

}  // namespace muster
