// What two nodes say on a connection by which one tests its way to the other. Pure.
//
//   it connects      kProbeMagic, the other's secret (32 digits), its own rank (4 bytes)
//   the other        kProbeMagic, its rank
//   some pings       'P'; answered with 'P' and when that came and left by its clock (8 bytes each,
//                    nanoseconds since 1970)
//   a lot of bytes   'D' and kProbeBytes; answered with 'A' when all are there, then kProbeBytes
//
// Numbers have their first byte first.
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
/// The rank of who says it; nothing: it is no greeting, or not with this secret.
std::optional<int> read_greeting(std::string_view bytes, std::string_view secret);

std::string probe_welcome(int rank);
/// Whether the node of this rank has answered.
bool is_welcome_of(std::string_view bytes, int rank);

/// By the clock on the wall, in nanoseconds since 1970.
using WallNanoseconds = std::int64_t;
std::string probe_pong(WallNanoseconds received, WallNanoseconds sent);

struct PingTimes {
  WallNanoseconds sent = 0;      // By our clock, as the last one.
  WallNanoseconds received = 0;  // By theirs, as the next one.
  WallNanoseconds answered = 0;
  WallNanoseconds back = 0;
};
/// Puts what they say into `times`; false: it is no pong.
bool read_pong(std::string_view bytes, PingTimes& times);
/// By how much their clock is ahead of ours, as NTP reckons it: right if both ways take as long.
double ahead_seconds(const PingTimes& times);

}  // namespace muster::ctl
