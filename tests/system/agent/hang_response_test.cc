// Tests the watch for hangs with real processes and a real loop.
#include "agent/io/hang_response.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include "tests/support/temp_folder.h"

namespace muster {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 20s;

/// A process that does nothing, or that computes all the time.
struct Child {
  explicit Child(bool computes) : pid(::fork()) {
    if (pid != 0) return;
    ::setsid();
    for (;;)
      if (!computes) ::pause();
  }
  ~Child() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t pid;
};

struct HangResponseTest {
  testing::TempFolder place;
  boost::asio::io_context io{1};
  WorkerTable workers;
  std::vector<std::pair<LocalRank, std::string>> hung;
  bool console_is_full = false;
  // No tool is in this PATH, so the stacks are written at once.
  HangResponse response{
      io,
      workers,
      {"PATH=/nowhere"},
      200ms,
      {.workers =
           [this] {
             std::vector<StackCollector::Target> targets;
             for (const auto& [rank, pid] : workers.running())
               targets.push_back({rank, pid, place.dir});
             return targets;
           },
       .program = [] { return std::string("python3"); },
       .console_is_full = [this] { return console_is_full; },
       .on_hung = [this](LocalRank rank,
                         const std::string& why) { hung.emplace_back(rank, why); }}};

  void begin_attempt(const Child& first, const Child& second) {
    workers.attempt_begins();
    workers.started(LocalRank{0}, first.pid);
    workers.started(LocalRank{1}, second.pid);
  }
  void until_hung(std::size_t count) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (hung.size() < count) {
      REQUIRE(std::chrono::steady_clock::now() < end);
      io.restart();
      io.run_one_for(100ms);
    }
  }
};

TEST_CASE_METHOD(HangResponseTest,
                 "hang_response: no worker hangs while nobody reads the full console",
                 "[unit][agent]") {
  const Child first(false);
  const Child second(false);
  console_is_full = true;
  begin_attempt(first, second);
  io.run_for(1s);  // Five times the timeout.
  CHECK(hung.empty());
  console_is_full = false;
  until_hung(1);
}

TEST_CASE_METHOD(HangResponseTest,
                 "hang_response: the watch goes on after a hanging worker has ended with success",
                 "[unit][agent]") {
  const Child first(false);
  const Child second(false);
  begin_attempt(first, second);
  until_hung(1);
  const LocalRank ended = hung[0].first;
  workers.ended(ended, {});  // Its handler of SIGABRT has exited with 0.
  until_hung(2);
  CHECK(hung[1].first == LocalRank{1 - ended.value});
}

TEST_CASE_METHOD(HangResponseTest,
                 "hang_response: a worker that is being ended is reported only once",
                 "[unit][agent]") {
  const Child first(false);
  const Child second(false);
  begin_attempt(first, second);
  until_hung(1);
  workers.ended(LocalRank{1 - hung[0].first.value}, {});
  io.restart();
  io.run_for(1s);
  CHECK(hung.size() == 1);
}

TEST_CASE_METHOD(HangResponseTest, "hang_response: a promise of progress ends with its attempt",
                 "[unit][agent]") {
  workers.attempt_begins();
  workers.attempt_ends();
  response.progressed(LocalRank{0});  // The worker reports progress until it is killed.
  const Child next(true);
  workers.attempt_begins();
  workers.started(LocalRank{0}, next.pid);
  io.run_for(1s);
  for (const auto& [rank, why] : hung)  // On a busy machine the child may get no processor.
    CHECK(why.find("no report of progress") == std::string::npos);
}

}  // namespace
}  // namespace muster
