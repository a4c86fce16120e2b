// Finds workers that try to connect to an address that does not answer, by the kernel's tables of
// TCP sockets. An address that refuses a connection cannot be found in this way: the socket of such
// a try is gone within microseconds.
//
// Pure: the texts and the time are arguments.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace muster {

struct ConnectingSocket {
  std::string remote;  // "10.0.0.1:29500", "[fd00::1]:29500"
  std::uint64_t inode = 0;
  bool operator==(const ConnectingSocket&) const = default;
};

/// The sockets whose connection is not answered yet, from the text of /proc/PID/net/tcp or tcp6. At
/// most kMaxConnecting. Lines of another form are left out.
std::vector<ConnectingSocket> connecting_sockets(std::string_view table);
inline constexpr std::size_t kMaxConnecting = 1024;

/// Decides when to look, rarer each time, and which of the connections to report.
class UnansweredDetector {
 public:
  using Seen = std::set<std::pair<LocalRank, std::string>>;  // Workers and remote ends.
  static constexpr Duration kFirst = std::chrono::seconds(5);
  static constexpr Duration kLongest = std::chrono::minutes(10);
  /// A healthy connection takes less than this time.
  static constexpr Duration kConfirm = std::chrono::seconds(3);
  static constexpr std::size_t kMaxReported = 16;

  void begin_attempt() { *this = UnansweredDetector(); }
  /// What was seen now. Returns what was seen the last time, too, and was not returned before.
  Seen observe(Seen seen);
  /// The time until the next look.
  Duration pause() const { return pause_; }

 private:
  Seen last_;
  Seen reported_;
  Duration pause_ = kFirst;
  Duration longer_ = kFirst;
};

}  // namespace muster
