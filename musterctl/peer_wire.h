// The protocol between two nodes: one, the client, tests its connection to the other. Pure.
//
//   greeting   The client sends kProbeMagic, the other node's secret (32 digits), and its own rank
//              (4 bytes).
//   welcome    The other node answers with kProbeMagic and its own rank.
//   pings      The client sends 'P' several times. Each answer is 'P', and the times at which the
//              ping came and the answer left by the other node's clock (8 bytes each, nanoseconds
//              since 1970).
//   data       The client sends 'D' and kProbeBytes bytes. When all have come, the other node
//              answers with 'A' and kProbeBytes bytes.
//
// Numbers are big-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "musterctl/peer_facts.h"

namespace muster::ctl {

inline constexpr std::string_view kProbeMagic = "muster doctor 1\n";
inline constexpr std::size_t kGreetingBytes = kProbeMagic.size() + kSecretDigits + 4;
inline constexpr std::size_t kWelcomeBytes = kProbeMagic.size() + 4;
inline constexpr std::size_t kPongBytes = 17;
inline constexpr char kPing = 'P';
inline constexpr char kData = 'D';
inline constexpr char kArrived = 'A';

std::string probe_greeting(std::string_view secret, int rank);
/// The rank in the greeting; nothing: this is no greeting, or one with another secret.
std::optional<int> read_greeting(std::string_view bytes, std::string_view secret);

std::string probe_welcome(int rank);
/// Whether this is the welcome of the node with this rank.
bool is_welcome_of(std::string_view bytes, int rank);

/// Wall-clock time, in nanoseconds since 1970.
using WallNanoseconds = std::int64_t;
std::string probe_pong(WallNanoseconds received, WallNanoseconds sent);

struct PingTimes {
  WallNanoseconds sent = 0;      // By this node's clock.
  WallNanoseconds received = 0;  // By the other node's clock.
  WallNanoseconds answered = 0;  // By the other node's clock.
  WallNanoseconds back = 0;      // By this node's clock.
};
/// Puts the other node's two times into `times`; false: the bytes are no pong.
bool read_pong(std::string_view bytes, PingTimes& times);
/// How far the other node's clock is ahead of this node's, computed as NTP does: exact if both
/// directions take equally long.
double ahead_seconds(const PingTimes& times);

}  // namespace muster::ctl
