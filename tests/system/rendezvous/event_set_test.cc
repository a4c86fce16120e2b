// The event set in a real loop, with events from a pipe. It must neither keep the loop from other
// work nor wake it without an event.

#include "rendezvous/server/event_set.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include <boost/asio/post.hpp>
#include <catch2/catch.hpp>

namespace muster {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

constexpr auto kBound = 20s;  // A limit for waits that should end at once.

/// A set that watches a pipe. While `more` is true, each byte that is read is written again, so
/// there are always further events.
class FedSet {
 public:
  explicit FedSet(asio::io_context& loop) : set_(loop) {
    REQUIRE(::pipe2(ends_, O_NONBLOCK | O_CLOEXEC) == 0);
    REQUIRE(set_.open() == nullptr);
    REQUIRE(set_.add(ends_[0], EPOLLIN, 7));
    wait();
  }
  FedSet(const FedSet&) = delete;
  FedSet& operator=(const FedSet&) = delete;
  ~FedSet() {
    if (set_.is_open()) set_.close();
    ::close(ends_[0]);
    ::close(ends_[1]);
  }

  void feed() { REQUIRE(::write(ends_[1], "x", 1) == 1); }
  void close() { set_.close(); }

  std::function<bool()> more = [] { return false; };
  int turns = 0;
  int events = 0;
  int most_events_in_a_turn = 0;

 private:
  void wait() {
    set_.async_wait([this](const boost::system::error_code& error) {
      if (error) return;
      const int before = events;
      ++turns;
      set_.run_turn([this](std::span<const epoll_event> found, Instant) { serve(found); });
      most_events_in_a_turn = std::max(most_events_in_a_turn, events - before);
      if (set_.is_open()) wait();
    });
  }
  void serve(std::span<const epoll_event> found) {
    REQUIRE(found.size() == 1);
    const std::uint64_t number = found[0].data.u64;  // Copied: it is not aligned for Catch.
    REQUIRE(number == 7);
    char byte = 0;
    REQUIRE(::read(ends_[0], &byte, 1) == 1);
    ++events;
    if (more()) feed();
  }

  EventSet set_;
  int ends_[2];
};

/// Runs the loop until `done()` is true, for a limited time.
template <typename Done>
bool run_until(asio::io_context& loop, Done done) {
  const auto end = std::chrono::steady_clock::now() + kBound;
  while (!done() && std::chrono::steady_clock::now() < end)
    loop.run_one_for(100ms);
  return done();
}

TEST_CASE("event set: prompt events are served without a return to the loop",
          "[conformance][event_set]") {
  asio::io_context loop{1};
  FedSet set(loop);
  set.more = [] { return true; };
  set.feed();
  CHECK(run_until(loop, [&] { return set.most_events_in_a_turn > 1; }));
}

TEST_CASE("event set: endless events do not keep the loop from other work",
          "[conformance][event_set]") {
  asio::io_context loop{1};
  FedSet set(loop);
  set.more = [] { return true; };
  set.feed();
  REQUIRE(run_until(loop, [&] { return set.most_events_in_a_turn > 1; }));
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

TEST_CASE("event set: after the last event the loop runs other work and is not woken any more",
          "[conformance][event_set]") {
  asio::io_context loop{1};
  FedSet set(loop);
  set.more = [&set] { return set.most_events_in_a_turn <= 1; };
  set.feed();
  REQUIRE(run_until(loop, [&] { return set.most_events_in_a_turn > 1; }));
  // A wake-up that was armed for the last events may still come. After it there is none for many
  // ticks.
  const auto quiet = [&] { return loop.run_one_for(20 * EventSet::kWait) == 0; };
  CHECK(run_until(loop, quiet));
  CHECK(quiet());
  const int turns = set.turns;
  set.feed();
  CHECK(run_until(loop, [&] { return set.turns > turns; }));
  CHECK(run_until(loop, quiet));
}

TEST_CASE("event set: a handler of its events may close it", "[conformance][event_set]") {
  asio::io_context loop{1};
  FedSet set(loop);
  set.more = [&set] {
    if (set.most_events_in_a_turn > 1) set.close();
    return set.most_events_in_a_turn <= 1;
  };
  set.feed();
  const auto end = std::chrono::steady_clock::now() + kBound;
  loop.run_until(end);
  CHECK(loop.stopped());
  CHECK(set.most_events_in_a_turn > 1);
}

}  // namespace
}  // namespace muster
