// The agent against a fake shim: the test plays the shim's end of their socket, so that it sees
// each request and decides what becomes of the workers, which never run.

#include "agent/io/agent.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "agent/io/run_files.h"
#include "agent/posix/shim_protocol.h"
#include "tests/support/temp_folder.h"

namespace muster::testing {
namespace {

using namespace std::chrono_literals;
using Kind = ShimRequest::Kind;

constexpr auto kBound = 60s;  // For one request. Only a broken agent needs as long.

/// A pipe that is full, or empty.
struct Pipe {
  explicit Pipe(bool full) {
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    if (!full) return;
    ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
    const std::string block(4096, '.');
    while (::write(ends[1], block.data(), block.size()) > 0) {
    }
    ::fcntl(ends[1], F_SETFL, 0);
  }
  ~Pipe() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  std::array<int, 2> ends{};
};

/// An agent in a process of its own, and the shim's end of its socket.
class FakeShim {
 public:
  explicit FakeShim(AgentOptions options, int console = -1) {
    const auto pair = make_shim_pair();
    REQUIRE(pair.has_value());
    socket_ = OwnedFd(pair->first);
    agent_ = ::fork();
    if (agent_ == 0) {
      ::setsid();
      socket_.reset();
      if (console >= 0) ::dup2(console, STDOUT_FILENO);
      if (console >= 0) ::dup2(console, STDERR_FILENO);
      std::vector<std::string> environment{"PATH=/usr/bin:/bin"};
      RunFiles files = RunFiles::choose(options, environment);
      ::_exit(run_agent(options, {.environment = environment,
                                  .run_files = files,
                                  .socket = pair->second,
                                  .launcher_pid = ::getppid()}));
    }
    ::close(pair->second);
  }
  ~FakeShim() {
    if (agent_ > 0) ::kill(agent_, SIGKILL);
    if (agent_ > 0) ::waitpid(agent_, nullptr, 0);
  }
  FakeShim(const FakeShim&) = delete;
  FakeShim& operator=(const FakeShim&) = delete;

  void send(const ShimReport& report) { REQUIRE_FALSE(send_message(socket_.get(), report)); }

  /// The next request that is no answer to a ping.
  ShimRequest next() {
    Received<ShimRequest> received;
    if (early_.empty()) {
      received = receive();
    } else {
      received = std::move(early_.front());
      early_.pop_front();
    }
    if (received.message.kind == Kind::Keep) {
      locks_ = std::move(received.fds);
      return next();
    }
    // The workers' pipes stay open until they end.
    if (received.message.kind == Kind::Start)
      streams_[received.message.worker] = std::move(received.fds);
    return received.message;
  }
  /// Whether the agent's loop answers. Requests that it sends before are kept for next().
  bool answers(int number) {
    send({.kind = ShimReport::Kind::Ping, .count = number});
    for (;;) {
      Received<ShimRequest> received = receive();
      if (received.message.kind == Kind::Pong) return received.message.number == number;
      early_.push_back(std::move(received));
    }
  }

  /// Takes the start requests of this attempt, and reports that the workers run.
  void start_workers(int workers, int attempt) {
    for (int rank = 0; rank < workers; ++rank) {
      const ShimRequest request = next();
      REQUIRE(request.kind == Kind::Start);
      CHECK(request.worker == rank);
      CHECK(request.attempt == attempt);
    }
    for (int rank = 0; rank < workers; ++rank)
      send({.kind = ShimReport::Kind::Started, .worker = rank, .pid = pid_of(rank)});
  }
  void exits(int rank, int status) { ends(rank, CLD_EXITED, status); }
  void is_killed(int rank, int signal) { ends(rank, CLD_KILLED, signal); }
  void signal(int number) {
    send({.kind = ShimReport::Kind::SignalReceived, .status = number, .count = 1});
  }
  void all_gone() {
    REQUIRE(next().kind == Kind::KillAll);
    send({.kind = ShimReport::Kind::AllGone});
  }
  void close() { socket_.reset(); }
  const std::vector<OwnedFd>& locks() const { return locks_; }
  void close_locks() { locks_.clear(); }
  void kill_agent() { ::kill(agent_, SIGKILL); }
  int wait_for_exit() {
    int status = 0;
    REQUIRE(::waitpid(agent_, &status, 0) == agent_);
    agent_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  // Above every pid of this machine, so that the agent finds no such process.
  static int pid_of(int rank) { return (1 << 30) + rank; }

  Received<ShimRequest> receive() {
    const auto end = std::chrono::steady_clock::now() + kBound;
    while (std::chrono::steady_clock::now() < end) {
      auto received = receive_message<ShimRequest>(socket_.get());
      if (received) return std::move(*received);
      REQUIRE(received.error().value() == EAGAIN);
      pollfd readable{socket_.get(), POLLIN, 0};
      ::poll(&readable, 1, 1000);
    }
    FAIL("the agent has sent no request");
    return {};
  }
  void ends(int rank, int code, int status) {
    streams_.erase(rank);
    send({.kind = ShimReport::Kind::Exited,
          .worker = rank,
          .pid = pid_of(rank),
          .code = code,
          .status = status,
          .wall_ms = 1'790'000'000'000});
  }

  OwnedFd socket_;
  pid_t agent_ = -1;
  std::deque<Received<ShimRequest>> early_;
  std::vector<OwnedFd> locks_;
  std::map<int, std::vector<OwnedFd>> streams_;
};

AgentOptions two_workers(int restarts = 0) {
  AgentOptions options;
  options.local_world_size = 2;
  options.max_restarts = restarts;
  options.run_id = "test";
  options.signals_to_handle = {SIGTERM, SIGINT};
  options.command = {"/bin/true"};
  options.entry_point = "true";
  return options;
}

TEST_CASE("agent: workers that end well end the job with 0", "[unit][agent]") {
  Pipe console(false);
  FakeShim shim(two_workers(), console.ends[1]);
  CHECK(shim.answers(7));
  shim.start_workers(2, 0);
  CHECK(shim.answers(8));
  shim.exits(1, 0);
  shim.exits(0, 0);
  shim.all_gone();
  const ShimRequest end = shim.next();
  CHECK(end.kind == Kind::End);
  CHECK(end.exit_code == 0);
  CHECK(shim.wait_for_exit() == 0);
}

TEST_CASE("agent: a failed worker stops the others, and all start again", "[unit][agent]") {
  Pipe console(false);
  FakeShim shim(two_workers(1), console.ends[1]);
  shim.start_workers(2, 0);
  shim.exits(1, 3);
  const ShimRequest stop = shim.next();
  CHECK(stop.kind == Kind::Signal);
  CHECK(stop.worker == 0);
  CHECK(stop.number == SIGTERM);
  CHECK(shim.next().worker == 1);  // The shim knows that this one has ended.
  shim.is_killed(0, SIGTERM);
  shim.all_gone();
  shim.start_workers(2, 1);
  shim.exits(0, 5);
  CHECK(shim.next().kind == Kind::Signal);
  CHECK(shim.next().kind == Kind::Signal);
  shim.is_killed(1, SIGTERM);
  shim.all_gone();
  CHECK(shim.next().exit_code == 1);
}

TEST_CASE("agent: the first signal stops the workers, the second kills", "[unit][agent]") {
  Pipe console(false);
  FakeShim shim(two_workers(), console.ends[1]);
  shim.start_workers(2, 0);
  shim.signal(SIGINT);
  for (int rank = 0; rank < 2; ++rank) {
    const ShimRequest stop = shim.next();
    CHECK(stop.kind == Kind::Signal);
    CHECK(stop.number == SIGINT);
  }
  shim.signal(SIGINT);
  REQUIRE(shim.next().kind == Kind::KillAll);
  shim.is_killed(0, SIGKILL);
  shim.is_killed(1, SIGKILL);
  shim.send({.kind = ShimReport::Kind::AllGone});
  CHECK(shim.next().kind == Kind::End);
}

TEST_CASE("agent: a console without a reader delays neither answers nor stops", "[unit][agent]") {
  Pipe console(true);
  FakeShim shim(two_workers(), console.ends[1]);
  shim.start_workers(2, 0);
  CHECK(shim.answers(1));
  shim.exits(0, 1);
  CHECK(shim.next().kind == Kind::Signal);
  CHECK(shim.next().kind == Kind::Signal);
  CHECK(shim.answers(2));
  shim.is_killed(1, SIGTERM);
  shim.all_gone();
  CHECK(shim.answers(3));
  // The report waits for a reader. A signal ends the wait.
  shim.signal(SIGTERM);
  const ShimRequest end = shim.next();
  CHECK(end.kind == Kind::End);
  CHECK(end.exit_code == 1);
}

TEST_CASE("agent: a signal does not change an end that is being reported", "[unit][agent]") {
  const TempFolder folder;
  AgentOptions options = two_workers();
  options.log.dir = "/dev/null/logs";  // So the job cannot begin.
  options.failure_report = (folder.dir / "report.json").string();
  Pipe console(true);  // The report waits for a reader.
  FakeShim shim(options, console.ends[1]);
  const auto deadline = std::chrono::steady_clock::now() + kBound;
  const auto report = [&options] {
    std::ifstream file(options.failure_report);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  while (report().empty() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(1ms);
  CHECK_THAT(report(), Catch::Contains("\"start_failed\""));
  shim.signal(SIGTERM);
  const ShimRequest end = shim.next();
  CHECK(end.kind == Kind::End);
  CHECK(end.number == 0);
  CHECK(end.exit_code == 1);
  CHECK_THAT(report(), Catch::Contains("\"start_failed\""));
}

TEST_CASE("agent: its folder has an owner until the shim ends, too", "[unit][agent]") {
  Pipe console(false);
  FakeShim shim(two_workers(), console.ends[1]);
  shim.start_workers(2, 0);
  REQUIRE(shim.locks().size() == 1);
  const std::filesystem::path folder =
      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(shim.locks()[0].get()));
  const OwnedFd other(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  REQUIRE(other.is_open());
  shim.kill_agent();
  CHECK(shim.wait_for_exit() == -SIGKILL);
  CHECK(::flock(other.get(), LOCK_EX | LOCK_NB) != 0);
  shim.close_locks();
  CHECK(::flock(other.get(), LOCK_EX | LOCK_NB) == 0);
  std::filesystem::remove_all(folder);  // In place of the front and the shim.
}

TEST_CASE("agent: it ends when the shim is gone", "[unit][agent]") {
  Pipe console(false);
  FakeShim shim(two_workers(), console.ends[1]);
  shim.start_workers(2, 0);
  shim.close();
  CHECK(shim.wait_for_exit() == 1);
}

}  // namespace
}  // namespace muster::testing
