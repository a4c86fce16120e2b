#include "agent/posix/bounded_read.h"

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

namespace muster {

// Plays a file of /proc whose reader waits for a lock that a stuck process holds.
TEST_CASE("bounded read: a process delays its reader once only, and delays no other read",
          "[unit][agent]") {
  constexpr std::chrono::milliseconds kShort{1};
  constexpr std::chrono::seconds kLong{30};
  std::promise<void> lock;
  const auto waits = [is_free = lock.get_future().share()] {
    is_free.wait();
    return std::string("late");
  };
  CHECK_FALSE(read_in_time(1, kShort, waits).has_value());
  CHECK_FALSE(read_in_time(1, kLong, waits).has_value());
  CHECK(read_in_time(2, kLong, [] { return std::string("text"); }) == "text");
  lock.set_value();
  // Once the first read has returned, the process is read again.
  const auto limit = std::chrono::steady_clock::now() + kLong;
  std::optional<std::string> again;
  while (!again && std::chrono::steady_clock::now() < limit)
    again = read_in_time(1, kLong, [] { return std::string("again"); });
  CHECK(again == "again");
}

TEST_CASE("bounded read: several threads may read at once", "[unit][agent]") {
  constexpr std::chrono::milliseconds kShort{1};
  constexpr std::chrono::seconds kLong{30};
  constexpr int kThreads = 4;
  std::promise<void> lock;
  const auto waits = [is_free = lock.get_future().share()] {
    is_free.wait();
    return std::string("late");
  };
  std::atomic<int> read_count = 0;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (pid_t pid = 1; pid <= kThreads; ++pid)
    threads.emplace_back([&, pid] {
      if (!read_in_time(pid, kShort, waits)) ++read_count;
      if (!read_in_time(pid, kLong, waits)) ++read_count;
      if (read_in_time(pid + kThreads, kLong, [] { return std::string("text"); })) ++read_count;
    });
  for (std::thread& thread : threads)
    thread.join();
  CHECK(read_count == 3 * kThreads);
  lock.set_value();
}

}  // namespace muster
