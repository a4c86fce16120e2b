#include "base/system/log_limiter.h"

#include <memory>
#include <mutex>
#include <stdexcept>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <catch2/catch.hpp>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include "base/net/guarded_loop.h"

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

TEST_CASE("log limiter: a line that the common limit leaves out is counted in the next one",
          "[unit][net]") {
  LogLimiter log;
  const Instant now{std::chrono::seconds(100)};
  int lines = 0;
  for (int i = 0; i < 250; ++i)
    if (log.admit(now, "a", make_address("10.0.0." + std::to_string(i)))) ++lines;
  CHECK(lines == 50);
  CHECK(log.admit(now + std::chrono::seconds(1), "b", make_address("192.0.2.1")) == 200U);
  CHECK(log.admit(now + std::chrono::seconds(1), "c", make_address("192.0.2.1")) == 0U);
}

TEST_CASE("log limiter: peers do not hide lines that concern no single peer", "[unit][net]") {
  LogLimiter log;
  const Instant now{std::chrono::seconds(100)};
  for (int i = 0; i < 250; ++i)
    log.admit(now, "a", make_address("10.0.0." + std::to_string(i)));
  CHECK(log.admit(now, "accept", {}));
  CHECK(log.admit(now));
}

TEST_CASE("guarded loop: it goes on although the failure of a handler cannot be logged",
          "[unit][net]") {
  struct NoMemory : spdlog::sinks::base_sink<std::mutex> {
    void sink_it_(const spdlog::details::log_msg&) override { throw 0; }  // spdlog passes it on.
    void flush_() override {}
  };
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("", std::make_shared<NoMemory>()));
  boost::asio::io_context loop;
  bool has_gone_on = false;
  boost::asio::post(loop, [] { throw std::runtime_error("broken"); });
  boost::asio::post(loop, [&] { has_gone_on = true; });
  CHECK_NOTHROW(run_guarded(loop, "test"));
  spdlog::set_default_logger(before);
  CHECK(has_gone_on);
}

}  // namespace muster::testing
