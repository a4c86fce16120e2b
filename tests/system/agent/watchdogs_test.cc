// Tests both watchdogs with a real pipe, real processes and a real loop.
#include "agent/io/watchdogs.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include "agent/io/file_timer.h"
#include "tests/support/temp_folder.h"

namespace muster {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using Environment = std::vector<std::string>;

constexpr auto kPatience = 20s;

// A process that waits to be killed. Like a worker, it leads a session if `leads`.
struct Child {
  explicit Child(bool leads) : pid(::fork()) {
    if (pid == 0) {
      ::signal(SIGTERM, SIG_DFL);  // Not the handler of the test framework.
      if (leads) ::setsid();
      for (;;)
        ::pause();
    }
    // Waits until the child leads its session.
    while (leads && ::getsid(pid) != pid) {
    }
  }
  ~Child() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  /// The signal that has killed the process; 0 while it is alive.
  int death() const {
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT);
    return info.si_pid == 0 ? 0 : info.si_status;
  }
  pid_t pid;
};

TEST_CASE("timer_fifo: there is none unless the environment asks for it", "[unit][timer]") {
  for (const Environment& environment : {Environment{},
                                         {"TORCHELASTIC_ENABLE_FILE_TIMER=0"},
                                         {"TORCHELASTIC_TIMER_FILE=/nowhere/x"}})
    CHECK_FALSE(TimerFifo::choose(environment).has_value());
}

TEST_CASE("timer_fifo: muster chooses an absolute path in a folder of its own", "[unit][timer]") {
  const testing::TempFolder place;
  // Relative to the working directory, which a worker may change before it opens the pipe.
  const fs::path relative = fs::relative(place.dir);
  for (const std::string& temporary : {place.dir.string(), relative.string()}) {
    auto fifo = TimerFifo::choose(
        {"TORCHELASTIC_ENABLE_FILE_TIMER=1", "TMPDIR=" + temporary, "TORCHELASTIC_TIMER_FILE="});
    REQUIRE(fifo.has_value());
    CHECK(fs::is_empty(place.dir));
    std::string where;
    REQUIRE_FALSE(fifo->create(where));
    CHECK(fs::is_fifo(fifo->path()));
    CHECK(fs::path(fifo->path()).is_absolute());
    CHECK(fs::equivalent(fs::path(fifo->path()).parent_path().parent_path(), place.dir));
    CHECK(fifo->fallback().empty());
    fifo->remove();
    CHECK(fs::is_empty(place.dir));
  }
}

TEST_CASE("timer_fifo: a place that cannot be used is passed over", "[unit][timer]") {
  const testing::TempFolder place;
  std::ofstream(place.dir / "file") << "no folder";
  auto fifo = TimerFifo::choose(
      {"TORCHELASTIC_ENABLE_FILE_TIMER=1", "TMPDIR=" + (place.dir / "none").string(),
       "TEMP=" + (place.dir / "file").string(), "TMP=" + place.dir.string()});
  REQUIRE(fifo.has_value());
  std::string where;
  REQUIRE_FALSE(fifo->create(where));
  CHECK(fs::path(fifo->path()).parent_path().parent_path() == place.dir);
  CHECK(fifo->fallback() == "cannot use " + (place.dir / "none").string() +
                                " (No such file or directory), " + (place.dir / "file").string() +
                                " (Not a directory) for the timers' pipe: it goes to " +
                                place.dir.string());
  // Removed by somebody else: there is a new one under the same name, in the same place.
  const std::string path = fifo->path();
  fs::remove_all(fs::path(path).parent_path());
  CHECK(fifo->is_lost());
  REQUIRE_FALSE(fifo->create(where));
  CHECK(fifo->path() == path);
  fs::remove(path);
  REQUIRE_FALSE(fifo->create(where));
  CHECK(fs::is_fifo(path));
  fifo->remove();
  CHECK_FALSE(fs::exists(fs::path(path).parent_path()));
}

struct TimerFifoTest {
  testing::TempFolder place;
  std::string path = place.dir / "timers";
  std::string where;
  TimerFifo chosen() const {
    auto fifo =
        TimerFifo::choose({"TORCHELASTIC_ENABLE_FILE_TIMER=1", "TORCHELASTIC_TIMER_FILE=" + path});
    REQUIRE(fifo.has_value());
    return std::move(*fifo);
  }
};

TEST_CASE_METHOD(TimerFifoTest, "timer_fifo: an old pipe is replaced, and a user's file is not",
                 "[unit][timer]") {
  TimerFifo first = chosen();
  REQUIRE_FALSE(first.create(where));
  TimerFifo second = chosen();
  REQUIRE_FALSE(second.create(where));
  first.remove();  // The pipe at the path is not `first`'s any more.
  CHECK(fs::is_fifo(path));
  second.remove();
  CHECK_FALSE(fs::exists(path));
  std::ofstream(path) << "precious";
  CHECK(chosen().create(where).value() == EEXIST);
  chosen().remove();
  chosen().remove_unread();
  CHECK(fs::file_size(path) == 8);
}

TEST_CASE_METHOD(TimerFifoTest,
                 "timer_fifo: the front removes the agent's pipe when it has no reader",
                 "[unit][timer]") {
  const TimerFifo fronts = chosen();
  fronts.remove_unread();  // The agent was killed before it created the pipe.
  std::optional<TimerFifo> agents = chosen();
  REQUIRE_FALSE(agents->create(where));
  fronts.remove_unread();
  CHECK(fs::is_fifo(path));
  agents.reset();  // The kernel closes the pipe like this when the agent is killed.
  fronts.remove_unread();
  CHECK_FALSE(fs::exists(path));
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);  // The agent was killed before it opened the pipe.
  fronts.remove_unread();
  CHECK_FALSE(fs::exists(path));
}

struct FileTimerTest : TimerFifoTest {
  boost::asio::io_context io{1};
  WorkerTable workers;
  std::vector<FileTimer::Expired> expired;
  std::optional<TimerFifo> fifo;
  std::optional<FileTimer> timers;

  FileTimerTest() {
    fifo = chosen();
    REQUIRE_FALSE(fifo->create(where));
    timers.emplace(io, workers, *fifo,
                   [this](const FileTimer::Expired& timer) { expired.push_back(timer); });
  }
  /// Does the same as torch's client: open, write one line, close.
  void write(const std::string& text) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    REQUIRE(fd >= 0);
    REQUIRE(::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    ::close(fd);
  }
  void ask(pid_t pid, const std::string& scope, double in_s, int signal = SIGKILL) {
    const double now =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    write(R"({"version": 1, "pid": )" + std::to_string(pid) + R"(, "scope_id": ")" + scope +
          R"(", "expiration_time": )" + std::to_string(in_s < 0 ? -1 : now + in_s) +
          R"(, "signal": )" + std::to_string(signal) + "}\n");
  }
  /// Runs the loop until the condition holds.
  template <typename Condition>
  void until(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
      REQUIRE(std::chrono::steady_clock::now() < end);
      io.restart();
      io.run_one_for(100ms);
    }
  }
};

TEST_CASE_METHOD(FileTimerTest, "file_timer: a worker whose timer runs out is killed",
                 "[unit][timer]") {
  const Child worker(true);
  const Child other(true);
  workers.started(LocalRank{0}, other.pid);
  workers.started(LocalRank{1}, worker.pid);
  ask(worker.pid, "step", 0.05, SIGTERM);
  until([this] { return !expired.empty(); });
  CHECK(expired[0].rank == LocalRank{1});
  CHECK(expired[0].is_worker);
  CHECK(expired[0].scope == "step");
  CHECK(expired[0].signal == SIGTERM);
  until([&worker] { return worker.death() != 0; });
  CHECK(worker.death() == SIGTERM);
  CHECK(other.death() == 0);
}

TEST_CASE_METHOD(FileTimerTest, "file_timer: a timer that is cancelled in time kills no worker",
                 "[unit][timer]") {
  const Child worker(true);
  const Child last(true);
  workers.started(LocalRank{0}, worker.pid);
  workers.started(LocalRank{1}, last.pid);
  // The loop has not run yet: it reads both requests after the deadline.
  ask(worker.pid, "step", 0);
  ask(worker.pid, "step", -1, 0);
  ask(last.pid, "step", 0);
  until([this] { return !expired.empty(); });
  CHECK(expired.size() == 1);
  CHECK(expired[0].pid == last.pid);
  CHECK(worker.death() == 0);
}

TEST_CASE_METHOD(FileTimerTest, "file_timer: a process that is no worker is not killed",
                 "[unit][timer]") {
  const Child worker(true);
  const Child stranger(true);
  workers.started(LocalRank{0}, worker.pid);
  ask(stranger.pid, "step", 0);
  ask(::getpid(), "step", 0);
  ask(1, "step", 0);
  write("no timer\n");
  write(std::string(3, '\n') + "{}\n");
  ask(worker.pid, "step", 0.01, 0);  // The latest: when it has run out, so have the others.
  until([this] { return !expired.empty(); });
  CHECK(expired.size() == 1);
  CHECK(expired[0].signal == 0);
  CHECK(worker.death() == 0);
  CHECK(stranger.death() == 0);
}

TEST_CASE_METHOD(FileTimerTest,
                 "file_timer: a timer may run out before the worker's start is reported",
                 "[unit][timer]") {
  const Child early(true);
  const Child known(true);
  const Child stranger(true);
  workers.started(LocalRank{1}, known.pid);
  ask(stranger.pid, "step", 0);
  ask(early.pid, "step", 0, SIGTERM);
  ask(known.pid, "step", 0);  // At the same time: when it has run out, so have the others.
  until([this] { return !expired.empty(); });
  CHECK(early.death() == 0);
  workers.started(LocalRank{0}, early.pid);
  REQUIRE(expired.size() == 2);
  CHECK(expired[1].rank == LocalRank{0});
  CHECK(expired[1].is_worker);
  until([&early] { return early.death() != 0; });
  CHECK(early.death() == SIGTERM);
  workers.attempt_begins();
  workers.started(LocalRank{0}, stranger.pid);  // The timer belonged to the last attempt.
  CHECK(expired.size() == 2);
  CHECK(stranger.death() == 0);
}

TEST_CASE_METHOD(FileTimerTest, "file_timer: a child of a worker may have a timer, too",
                 "[unit][timer]") {
  const Child first(true);
  workers.started(LocalRank{0}, ::getpid());  // Makes this process a worker, and `first` its child.
  ask(first.pid, "step", 0);
  until([this] { return !expired.empty(); });
  CHECK_FALSE(expired[0].is_worker);
  CHECK(expired[0].pid == first.pid);
}

TEST_CASE_METHOD(FileTimerTest, "file_timer: reset forgets also what has not been read",
                 "[unit][timer]") {
  const Child worker(true);
  const Child last(true);
  ask(worker.pid, "step", 0);
  write("{\"begun");
  workers.attempt_begins();
  workers.started(LocalRank{0}, worker.pid);
  workers.started(LocalRank{1}, last.pid);
  ask(last.pid, "step", 0.02);
  until([this] { return !expired.empty(); });
  CHECK(expired[0].pid == last.pid);
  CHECK(worker.death() == 0);
}

struct StateWatchTest {
  boost::asio::io_context io{1};
  WorkerTable workers;
  std::vector<LocalRank> stuck;
  std::string reason;
  std::optional<Watchdogs> watchdogs;

  void watch(const std::string& variable) {
    watchdogs.emplace(io, workers, Environment{"A=1", variable}, nullptr,
                      Watchdogs::Handlers{
                          .on_reason = [this](LocalRank, const std::string& why) { reason = why; },
                          .on_stuck = [this](LocalRank rank) { stuck.push_back(rank); }},
                      [](pid_t pid) { return pid == 11 ? 'D' : 'S'; });
    workers.started(LocalRank{0}, 10);
    workers.started(LocalRank{1}, 11);
    io.run_for(kPatience);  // Returns early, when nothing is left to do.
  }
};

TEST_CASE_METHOD(StateWatchTest, "watchdogs: a worker in D is reported once, another is not",
                 "[unit][uninterruptible]") {
  watch("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT=0.15");
  CHECK(stuck == std::vector{LocalRank{1}});
  CHECK(reason.starts_with("it waited in the kernel (state D) for 0."));
  CHECK(reason.ends_with(" s, where no signal reaches it"));
  workers.started(LocalRank{2}, 12);
  for (int rank = 0; rank < 3; ++rank)
    workers.ended(LocalRank{rank}, {});
  io.restart();
  io.run_for(kPatience);
  CHECK(stuck.size() == 1);
}

TEST_CASE_METHOD(StateWatchTest, "watchdogs: the watch goes on after a stuck worker has succeeded",
                 "[unit][uninterruptible]") {
  watch("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT=0.15");
  REQUIRE(stuck.size() == 1);
  workers.attempt_ends();
  workers.attempt_begins();
  workers.started(LocalRank{0}, 11);
  workers.started(LocalRank{1}, 11);
  io.restart();
  io.run_for(kPatience);
  REQUIRE(stuck.size() == 2);
  workers.ended(stuck[1], {});
  io.restart();
  io.run_for(kPatience);
  REQUIRE(stuck.size() == 3);
  CHECK(stuck[2] != stuck[1]);
}

TEST_CASE_METHOD(StateWatchTest,
                 "watchdogs: workers in D are not looked for unless the environment asks",
                 "[unit][uninterruptible]") {
  watch(GENERATE("B=1", "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT=x"));
  CHECK(stuck.empty());
}

TEST_CASE_METHOD(FileTimerTest,
                 "watchdogs: the agent gets the reason of a worker whose timer ran out",
                 "[unit][timer]") {
  timers.reset();  // The pipe has one reader, and the table one observer.
  workers = {};
  std::vector<std::pair<LocalRank, std::string>> reasons;
  Watchdogs watchdogs(
      io, workers, {}, &*fifo,
      {.on_reason = [&reasons](LocalRank rank,
                               const std::string& why) { reasons.emplace_back(rank, why); },
       .on_stuck = [](LocalRank) { FAIL("nobody is stuck"); }});
  const Child worker(true);
  const Child last(true);
  workers.attempt_begins();
  workers.started(LocalRank{0}, worker.pid);
  workers.started(LocalRank{1}, last.pid);
  ask(worker.pid, "no signal", 0, 0);
  until([this] { return io.poll() == 0; });
  ask(last.pid, "step", 0);
  until([&reasons] { return !reasons.empty(); });
  CHECK(reasons.size() == 1);
  CHECK(reasons[0] == std::pair(LocalRank{1}, std::string("its timer \"step\" ran out")));
}

}  // namespace
}  // namespace muster
