#include "launcher/stream_flags.h"

#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "agent/core/log_cut.h"
#include "agent/core/signal_name.h"
#include "base/parsed_size.h"
#include "base/python_text.h"
#include "base/whole_number.h"

namespace muster {
namespace {

std::optional<StreamSet> stream_set(std::string_view text) {
  if (text.size() != 1 || text[0] < '0' || text[0] > '3') return std::nullopt;
  const int bits = text[0] - '0';
  return StreamSet{.out = (bits & 1) != 0, .err = (bits & 2) != 0};
}

/// A rank of digits only, at most nine: such a number always fits into an int.
std::optional<int> plain_rank(std::string_view text) {
  if (text.size() > 9 || text.starts_with('-')) return std::nullopt;
  return whole_number<int>(text);
}

}  // namespace

Checked<StreamMap> parse_streams(std::string_view text, const std::string& flag) {
  StreamMap map;
  if (const auto all = stream_set(text)) {
    map.all = *all;
    return map;
  }
  map.per_rank = true;
  for (const std::string_view part : split(text, ',')) {
    const auto colon = part.find(':');
    const auto rank = plain_rank(part.substr(0, colon));
    const auto streams =
        colon == std::string_view::npos ? std::nullopt : stream_set(part.substr(colon + 1));
    if (!rank || !streams)
      return FlagError{flag + " is " + python_repr(text) +
                       ": give 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or one of them for "
                       "each local rank, as in 0:3,1:2"};
    map.by_local_rank.insert_or_assign(*rank, *streams);
  }
  return map;
}

Checked<std::set<int>> parse_ranks(std::string_view text, const std::string& flag) {
  std::set<int> ranks;
  if (text.empty()) return ranks;
  for (const std::string_view part : split(text, ',')) {
    const auto rank = parse_python_int(part);
    if (!rank)
      return FlagError{flag + " is " + python_repr(text) +
                       ": give local ranks with commas between, as in 0,2"};
    // A number that no worker can have as its rank is clamped: it matches no worker either way.
    ranks.insert(
        static_cast<int>(std::clamp<std::int64_t>(*rank, -1, std::numeric_limits<int>::max())));
  }
  return ranks;
}

Checked<std::int64_t> parse_log_limit(std::string_view text, const std::string& flag) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  std::string_view digits = text;
  const unsigned shift = take_size_unit(digits);
  const auto number = parse_python_int(digits);
  if (!number || *number > (kMax >> shift) || (*number << shift) < kMinLogLimitBytes)
    return FlagError{flag + " is " + python_repr(text) +
                     ": give a number of bytes, at least 64K, as in 500K, 100M or 2G"};
  return *number << shift;
}

Checked<SignalList> parse_signals(std::string_view text, const std::string& flag) {
  SignalList list;
  for (const std::string_view part : split(text, ',')) {
    const std::string name(strip(part));
    const auto number = signal_number(name);
    if (!number) {
      list.unknown.push_back(name);
      continue;
    }
    if (*number == SIGKILL || *number == SIGSTOP)
      return FlagError{std::string(flag).append(" has ").append(name) +
                       ", which no process can handle; leave it out (muster's workers end with it "
                       "however it ends)"};
    if (*number == SIGCHLD)
      return FlagError{std::string(flag).append(" has ").append(name) +
                       ", which comes whenever a worker ends and so cannot mean the end of the "
                       "job; leave it out"};
    if (std::find(list.numbers.begin(), list.numbers.end(), *number) == list.numbers.end())
      list.numbers.push_back(*number);
  }
  return list;
}

}  // namespace muster
