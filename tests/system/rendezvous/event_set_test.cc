// The event set in a real loop, with events from a pipe. It must neither keep the loop from other
// work nor wake it without an event.

#include "rendezvous/server/event_set.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

#include <boost/asio/post.hpp>
#include <catch2/catch.hpp>

namespace muster {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

constexpr auto kBound = 20s;  // A limit for waits that should end at once.

/// A set that watches pipes. While `more` is true, each byte that is read is written again, so
/// there are always further events.
class FedSet {
 public:
  FedSet(asio::io_context& loop, std::size_t pipes) : set_(loop), pipes_(pipes) {
    REQUIRE(set_.open() == nullptr);
    for (std::size_t i = 0; i < pipes; ++i) {
      REQUIRE(::pipe2(pipes_[i].data(), O_NONBLOCK | O_CLOEXEC) == 0);
      REQUIRE(set_.add(pipes_[i][0], EPOLLIN, i));
    }
    wait();
  }
  FedSet(const FedSet&) = delete;
  FedSet& operator=(const FedSet&) = delete;
  ~FedSet() {
    if (set_.is_open()) set_.close();
    for (const auto& ends : pipes_)
      for (const int end : ends)
        ::close(end);
  }

  void feed(std::size_t pipe) { REQUIRE(::write(pipes_[pipe][1], "x", 1) == 1); }
  void feed_all() {
    for (std::size_t i = 0; i < pipes_.size(); ++i)
      feed(i);
  }
  void close() { set_.close(); }

  std::function<bool()> more = [] { return false; };
  int turns = 0;
  std::size_t events = 0;
  std::size_t most_events_in_a_turn = 0;

 private:
  void wait() {
    set_.async_wait([this](const boost::system::error_code& error) {
      if (error) return;
      const std::size_t before = events;
      ++turns;
      set_.run_turn([this](std::span<const epoll_event> found, Instant) { serve(found); });
      most_events_in_a_turn = std::max(most_events_in_a_turn, events - before);
      if (set_.is_open()) wait();
    });
  }
  void serve(std::span<const epoll_event> found) {
    for (const epoll_event& event : found) {
      const auto pipe = static_cast<std::size_t>(event.data.u64);
      char byte = 0;
      REQUIRE(::read(pipes_.at(pipe)[0], &byte, 1) == 1);
      ++events;
      if (more()) feed(pipe);
      if (!set_.is_open()) return;
    }
  }

  EventSet set_;
  std::vector<std::array<int, 2>> pipes_;
};

constexpr std::size_t kMany = 64;  // A batch that counts as large.

/// Runs the loop until `done()` is true, for a limited time.
template <typename Done>
bool run_until(asio::io_context& loop, Done done) {
  const auto end = std::chrono::steady_clock::now() + kBound;
  while (!done() && std::chrono::steady_clock::now() < end)
    loop.run_one_for(100ms);
  return done();
}

TEST_CASE("event set: large batches are served without a return to the loop",
          "[conformance][event_set]") {
  asio::io_context loop{1};
  FedSet set(loop, kMany);
  set.more = [] { return true; };
  set.feed_all();
  CHECK(run_until(loop, [&] { return set.most_events_in_a_turn > kMany; }));
}

TEST_CASE("event set: endless events do not keep the loop from other work",
          "[conformance][event_set]") {
  const std::size_t pipes = GENERATE(std::size_t{1}, kMany);
  asio::io_context loop{1};
  FedSet set(loop, pipes);
  set.more = [] { return true; };
  set.feed_all();
  std::atomic<int> posted = 0;
  std::thread other([&] {
    for (int i = 0; i < 50; ++i) {
      asio::post(loop, [&posted] { ++posted; });
      const auto end = std::chrono::steady_clock::now() + kBound;
      while (posted == i && std::chrono::steady_clock::now() < end)
        std::this_thread::yield();
    }
  });
  CHECK(run_until(loop, [&] { return posted == 50; }));
  other.join();
}

TEST_CASE("event set: without an event the loop is not woken", "[conformance][event_set]") {
  asio::io_context loop{1};
  FedSet set(loop, 1);
  set.feed_all();
  REQUIRE(run_until(loop, [&] { return set.events == 1; }));
  CHECK(loop.run_one_for(100ms) == 0);
  set.feed_all();
  CHECK(run_until(loop, [&] { return set.events == 2; }));
  CHECK(loop.run_one_for(100ms) == 0);
}

TEST_CASE("event set: a handler of its events may close it", "[conformance][event_set]") {
  asio::io_context loop{1};
  FedSet set(loop, kMany);
  set.more = [&set] {
    if (set.events == kMany + 1) set.close();
    return set.events <= kMany;
  };
  set.feed_all();
  loop.run_until(std::chrono::steady_clock::now() + kBound);
  CHECK(loop.stopped());
  CHECK(set.events == kMany + 1);
}

}  // namespace
}  // namespace muster
