#include "agent/sessions/retry_pause.h"

#include <algorithm>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/system/clock.h"

namespace muster {

namespace asio = boost::asio;

Duration left_until(Instant deadline, Duration most) {
  return std::clamp(deadline - now(), Duration::zero(), most);
}

Duration jittered(Duration most, std::minstd_rand& random) {
  std::uniform_int_distribution<Duration::rep> time(most.count() / 2, most.count());
  return Duration(time(random));
}

asio::awaitable<void> RetryPause::wait(Instant deadline) {
  timer_.expires_after(left_until(deadline, jittered(most_, random_)));
  most_ = std::min(2 * most_, kMax);
  co_await timer_.async_wait(asio::as_tuple(asio::use_awaitable));
}

}  // namespace muster
