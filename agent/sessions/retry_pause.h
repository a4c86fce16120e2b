// The pause between two tries to connect to the same place.
#pragma once

#include <random>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/system/system_random.h"
#include "base/time.h"

namespace muster {

/// Pauses that double from 0.1 s to 2 s. Each one is shortened by chance, to half of that at most.
class RetryPause {
 public:
  explicit RetryPause(const boost::asio::any_io_executor& executor) : timer_(executor) {}

  /// Waits for the next pause, but not beyond `deadline`.
  boost::asio::awaitable<void> wait(Instant deadline);
  /// Ends a running wait() at once.
  void cancel() { timer_.cancel(); }
  /// The next pause is the shortest again.
  void reset() { most_ = kFirst; }

 private:
  static constexpr Duration kFirst = std::chrono::milliseconds(100);
  static constexpr Duration kMax = std::chrono::seconds(2);

  boost::asio::steady_timer timer_;
  std::minstd_rand random_{random_seed()};
  Duration most_ = kFirst;
};

/// The time until `deadline`, at most `most` and never negative.
Duration left_until(Instant deadline, Duration most);

/// A random time between half of `most` and `most`, so that nodes which failed together do not
/// reconnect at the same instant.
Duration jittered(Duration most, std::minstd_rand& random);

}  // namespace muster
