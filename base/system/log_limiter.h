// Limits the number of log lines that clients can cause.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/ip/address.hpp>

#include "base/line_bucket.h"
#include "base/time.h"

namespace muster {

/// Admits one line for each cause and peer address in kQuiet. All lines about peers together are
/// limited, too: kLinesAtOnce at once, and one more each kRefill. The same limit holds for the
/// lines that concern no single peer: peers cannot hide them.
class LogLimiter {
 public:
  static constexpr Duration kQuiet = std::chrono::seconds(10);
  /// The number of causes and addresses that are tracked. For others only the common limit holds.
  static constexpr std::size_t kCauses = 1024;

  /// Whether a line may be written at `now`. If so, returns how many lines were left out since the
  /// last one: of this cause and address, or because of the common limit. `cause` must have static
  /// lifetime. An unspecified `peer`: the line concerns no single peer.
  std::optional<std::uint64_t> admit(Instant now, std::string_view cause,
                                     const boost::asio::ip::address& peer) {
    if (causes_.size() >= kCauses) sweep(now);
    const auto known = causes_.find({cause, peer});
    if (known != causes_.end() && now < known->second.quiet_until) {
      ++known->second.left_out;
      return std::nullopt;
    }
    if (!(peer.is_unspecified() ? own_lines_ : lines_).take(now)) {
      ++(known != causes_.end() ? known->second.left_out : left_out_);
      return std::nullopt;
    }
    std::uint64_t left_out = std::exchange(left_out_, 0);
    if (known == causes_.end() && causes_.size() >= kCauses) return left_out;
    Cause& entry = causes_[{cause, peer}];
    entry.quiet_until = now + kQuiet;
    return left_out + std::exchange(entry.left_out, 0);
  }
  /// The same for a line that does not concern one peer.
  bool admit(Instant now) { return own_lines_.take(now); }

 private:
  struct Cause {
    Instant quiet_until{};
    std::uint64_t left_out = 0;
  };
  static constexpr std::int64_t kLinesAtOnce = 50;
  static constexpr Duration kRefill = std::chrono::milliseconds(100);

  // Removes old entries, at most once a second: a flood from many addresses must not cause frequent
  // passes over all entries.
  void sweep(Instant now) {
    if (now < swept_ + std::chrono::seconds(1)) return;
    swept_ = now;
    std::erase_if(causes_, [now](const auto& entry) { return entry.second.quiet_until <= now; });
  }

  std::map<std::pair<std::string_view, boost::asio::ip::address>, Cause> causes_;
  LineBucket lines_{kLinesAtOnce, kRefill};
  LineBucket own_lines_{kLinesAtOnce, kRefill};
  std::uint64_t left_out_ = 0;  // By the common limit, of causes and peers that are not tracked.
  Instant swept_{};
};

}  // namespace muster
