// libFuzzer: what a node of `musterctl doctor --nodes` gets from others: the bytes at the port of
// its tests, the JSON in the workers' store, the lines of its own worker; and the text that is made
// of all that.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "musterctl/peer_checks.h"
#include "musterctl/peer_json.h"
#include "musterctl/peer_wire.h"
#include "tests/fuzz/shown_text.h"

namespace {

using namespace muster::ctl;
using muster::testing::check_shown;

constexpr std::string_view kSecret = "0123456789abcdef0123456789abcdef";

void read_wire(std::string_view bytes) {
  if (const auto rank = read_greeting(bytes, kSecret))
    if (*rank < 0 || probe_greeting(kSecret, *rank) != bytes) std::abort();
  if (read_greeting(bytes, "another secret")) std::abort();
  if (is_welcome_of(bytes, 3) && bytes.size() != kWelcomeBytes) std::abort();
  PingTimes times{.sent = 1'700'000'000'000'000'000, .back = 1'700'000'000'001'000'000};
  if (!read_pong(bytes, times)) return;
  if (probe_pong(times.received, times.answered) != bytes) std::abort();
  if (!std::isfinite(ahead_seconds(times))) std::abort();
}

/// An accepted value must be the same when it is written and read again.
template <typename Read>
void check_round_trip(std::string_view json, Read read) {
  const auto facts = read(json);
  if (!facts) return;
  const std::string written = to_json(*facts);
  const auto again = read(written);
  if (!again || to_json(*again) != written) std::abort();
}

void check_report(std::string_view lines) {
  PairFacts facts{.nodes = 3, .endpoint = "host:29400"};
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (auto node = read_node(line)) facts.own = *std::move(node);
    if (auto peer = read_peer(line)) facts.peers.push_back(*std::move(peer));
  }
  facts.complete = !facts.peers.empty();
  const auto checks = judge_pairs(facts);
  check_shown(checks_text(checks));
  check_shown(pairs_text(facts));
  check_shown(checks_json(checks, pairs_json(facts)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read_wire(text);
  check_round_trip(text, read_node);
  check_round_trip(text, read_probe);
  check_round_trip(text, read_peer);
  if (const auto reduce = read_reduce(text))
    if (!(reduce->ms <= 1e9)) std::abort();
  check_report(text);
  return 0;
}
