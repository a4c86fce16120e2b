#include "rendezvous/net/log_limiter.h"

#include <catch2/catch.hpp>

namespace muster::testing {

using boost::asio::ip::make_address;

TEST_CASE("log limiter: one line for each cause and peer, and how many were left out",
          "[unit][net]") {
  LogLimiter log;
  const auto peer = make_address("192.0.2.1");
  Instant now{std::chrono::seconds(100)};
  CHECK(log.admit(now, "a", peer) == 0U);
  for (int i = 0; i < 5; ++i)
    CHECK_FALSE(log.admit(now, "a", peer));
  CHECK(log.admit(now, "b", peer) == 0U);
  CHECK(log.admit(now, "a", make_address("192.0.2.2")) == 0U);
  now += LogLimiter::kQuiet;
  CHECK(log.admit(now, "a", peer) == 5U);
  CHECK_FALSE(log.admit(now, "a", peer));
}

TEST_CASE("log limiter: many peers together get a burst, and then some lines a second",
          "[unit][net]") {
  LogLimiter log;
  const Instant begin{std::chrono::seconds(100)};
  int lines = 0;
  for (int i = 0; i < 5'000; ++i) {
    const auto peer =
        make_address("10.0." + std::to_string(i / 250) + "." + std::to_string(i % 250));
    if (log.admit(begin + std::chrono::milliseconds(i), "a", peer)) ++lines;
  }
  CHECK(lines >= 50);
  CHECK(lines <= 50 + 50);
}

}  // namespace muster::testing
