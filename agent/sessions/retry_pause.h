// Between two tries to reach the same place.
#pragma once

#include <optional>
#include <random>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/core/time.h"
#include "rendezvous/net/system_random.h"

namespace muster {

/// Pauses that grow from 0.1 to 2 s.
class RetryPause {
 public:
  explicit RetryPause(const boost::asio::any_io_executor& executor) : timer_(executor) {}

  /// Not beyond `deadline`.
  boost::asio::awaitable<void> wait(std::optional<Instant> deadline);
  /// Ends a wait() that is under way.
  void cancel() { timer_.cancel(); }
  /// The next pause is the shortest again.
  void reset() { most_ = kFirst; }

 private:
  static constexpr Duration kFirst = std::chrono::milliseconds(100);
  static constexpr Duration kMost = std::chrono::seconds(2);

  boost::asio::steady_timer timer_;
  std::minstd_rand random_{random_seed()};
  Duration most_ = kFirst;
};

/// What is left until then, `most` at most; never negative.
Duration left_until(std::optional<Instant> deadline, Duration most);

/// A pause of half of `most` to `most`: what failed together does not come back together.
Duration jittered(Duration most, std::minstd_rand& random);

}  // namespace muster
