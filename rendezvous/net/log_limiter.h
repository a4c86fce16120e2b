// Bounds how many lines strangers can make us write.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/ip/address.hpp>

#include "rendezvous/core/time.h"

namespace muster {

/// Admits one line for each cause and peer address in kQuiet, and of all of them together a burst
/// and then so many a second.
class LogLimiter {
 public:
  static constexpr Duration kQuiet = std::chrono::seconds(10);
  /// Causes and addresses that are told apart; beyond them only the sum counts.
  static constexpr std::size_t kCauses = 1024;

  /// Whether a line may be written at `now`: if so, how many of this cause and address were left
  /// out since the last one. `cause` lives for ever.
  std::optional<std::uint64_t> admit(Instant now, std::string_view cause,
                                     const boost::asio::ip::address& peer) {
    if (causes_.size() >= kCauses) sweep(now);
    const auto known = causes_.find({cause, peer});
    if (known != causes_.end() && now < known->second.quiet_until) {
      ++known->second.left_out;
      return std::nullopt;
    }
    if (!take_from_bucket(now)) {
      if (known != causes_.end()) ++known->second.left_out;
      return std::nullopt;
    }
    if (known == causes_.end() && causes_.size() >= kCauses) return 0;
    Cause& entry = causes_[{cause, peer}];
    entry.quiet_until = now + kQuiet;
    return std::exchange(entry.left_out, 0);
  }
  /// The same for a line that is not about one peer.
  bool admit(Instant now) { return take_from_bucket(now); }

 private:
  struct Cause {
    Instant quiet_until{};
    std::uint64_t left_out = 0;
  };
  static constexpr std::int64_t kLinesAtOnce = 50;
  static constexpr Duration kRefill = std::chrono::milliseconds(100);

  bool take_from_bucket(Instant now) {
    const auto due = static_cast<std::int64_t>((now - refilled_) / kRefill);
    if (due > 0) {
      lines_ = std::min(kLinesAtOnce, lines_ + std::min(due, kLinesAtOnce));
      refilled_ = now;
    }
    if (lines_ == 0) return false;
    --lines_;
    return true;
  }
  // At most once a second: a flood from many addresses must not make us look at all of them often.
  void sweep(Instant now) {
    if (now < swept_ + std::chrono::seconds(1)) return;
    swept_ = now;
    std::erase_if(causes_, [now](const auto& entry) { return entry.second.quiet_until <= now; });
  }

  std::map<std::pair<std::string_view, boost::asio::ip::address>, Cause> causes_;
  std::int64_t lines_ = kLinesAtOnce;
  Instant refilled_{};
  Instant swept_{};
};

}  // namespace muster
