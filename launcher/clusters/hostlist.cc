#include "launcher/clusters/hostlist.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "base/python_text.h"
#include "base/whole_number.h"

namespace muster {
namespace {

using Hosts = std::vector<std::string>;

constexpr std::size_t kMaxDigits = 18;  // They fit into 64 bits.
constexpr std::size_t kMaxNameBytes = 255;
constexpr std::size_t kShownListBytes = 80;

FlagError bad_list(const std::string& variable, std::string_view text, std::string_view why) {
  return FlagError{variable + " is " + python_repr(text.substr(0, kShownListBytes)) + ": " +
                   std::string(why) + "; a list of hosts looks like node[01-04,07],login"};
}

std::optional<std::uint64_t> number_of(std::string_view digits) {
  if (digits.empty() || digits.size() > kMaxDigits) return std::nullopt;
  return whole_number<std::uint64_t>(digits);
}

/// Appends the numbers of "07" or "01-10", with the zeros in front. Whether the text is a range of
/// at most kMaxHosts numbers.
bool append_range(std::string_view text, Hosts& numbers) {
  const auto dash = text.find('-');
  const std::string_view first = text.substr(0, dash);
  const auto begin = number_of(first);
  const auto end = dash == std::string_view::npos ? begin : number_of(text.substr(dash + 1));
  if (!begin || !end || *end < *begin || *end - *begin >= kMaxHosts - numbers.size()) return false;
  for (std::uint64_t number = *begin; number <= *end; ++number) {
    std::string digits = std::to_string(number);
    if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
    numbers.push_back(std::move(digits));
  }
  return true;
}

/// The names before the bracket, each with each of the numbers. False if these are too many.
bool multiply(Hosts& names, const Hosts& numbers, std::size_t room) {
  if (numbers.size() > room / names.size()) return false;
  Hosts products;
  for (const std::string& name : names)
    for (const std::string& number : numbers)
      products.push_back(name + number);
  names = std::move(products);
  return true;
}

}  // namespace

Checked<Hosts> expand_hostlist(std::string_view text, const std::string& variable) {
  const auto bad = [&](std::string_view why) { return bad_list(variable, text, why); };
  if (text.size() > kMaxHostListBytes) return bad("it is too long");
  Hosts hosts;
  Hosts names{""};  // The names that the text since the last comma stands for.
  const auto end_names = [&]() -> bool {
    const bool good = !names.front().empty() && names.front().size() <= kMaxNameBytes;
    hosts.insert(hosts.end(), names.begin(), names.end());
    names.assign(1, "");
    return good && hosts.size() <= kMaxHosts;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ',') {
      if (!end_names()) return bad("a name is empty or too long, or there are too many");
    } else if (text[i] == '[') {
      const auto close = text.find(']', i);
      if (close == std::string_view::npos) return bad("a bracket is not closed");
      Hosts numbers;
      for (const std::string_view range : split(text.substr(i + 1, close - i - 1), ','))
        if (!append_range(range, numbers))
          return bad(python_repr(range.substr(0, kShownListBytes)) + " is no range of numbers");
      if (!multiply(names, numbers, kMaxHosts)) return bad("it stands for too many hosts");
      i = close;
    } else {
      if (names.front().size() > kMaxNameBytes) return bad("a name is too long");
      for (std::string& name : names)
        name += text[i];
    }
  }
  if (!end_names()) return bad("a name is empty or too long, or there are too many");
  return hosts;
}

Checked<Hosts> distinct_hosts(std::string_view text, const std::string& variable) {
  if (text.size() > kMaxHostListBytes)
    return FlagError{variable + ": the list of hosts is longer than " +
                     std::to_string(kMaxHostListBytes) + " bytes"};
  Hosts hosts;
  std::set<std::string_view> seen;
  constexpr std::string_view kBlanks = " \t\r\n";
  for (std::size_t at = text.find_first_not_of(kBlanks); at != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kBlanks, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    if (word.size() > kMaxNameBytes)
      return FlagError{variable + ": " + python_repr(word.substr(0, kShownListBytes)) +
                       "... is too long for the name of a host"};
    if (seen.insert(word).second) hosts.emplace_back(word);
    at = text.find_first_not_of(kBlanks, end);
  }
  if (hosts.size() > kMaxHosts)
    return FlagError{variable + ": more than " + std::to_string(kMaxHosts) + " hosts"};
  return hosts;
}

}  // namespace muster
