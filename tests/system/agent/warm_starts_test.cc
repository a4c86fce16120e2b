#include "agent/posix/warm_starts.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "agent/posix/process_scan.h"
#include "agent/posix/shim_reports.h"
#include "base/system/clock.h"

namespace muster {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPatience = 60s;

// The beginning of each fake zygote. `shim` is its socket.
constexpr const char* kBegin = R"(
import array, os, signal, socket, struct, sys, time
shim = socket.socket(fileno=os.dup(0))
def sleep():
    time.sleep(1000)
def request():
    fds = array.array("i")
    data, control, _, _ = shim.recvmsg(16, socket.CMSG_SPACE(8 * 4))
    if not data:
        os._exit(0)
    for _, _, payload in control:
        fds.frombytes(payload)
    return socket.socket(fileno=fds[1]), list(fds)
def fork_worker(control):
    """Returns in a child of the shim that leads a session."""
    if os.fork() != 0:
        return False
    before = os.getpid()
    if os.fork() != 0:
        os._exit(0)
    while os.getppid() == before:
        time.sleep(0.001)
    os.setsid()
    return True
)";

std::size_t open_files() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

// Plays the shim's loop for a zygote that is a program of the test.
class WarmStartsTest {
 public:
  WarmStartsTest() {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    ::getrlimit(RLIMIT_NOFILE, &workers_.file_limit);
  }
  ~WarmStartsTest() {
    starts_.stop();
    // Forks that sleep are children of this process, too.
    for (auto left = own_children(); left && !left->empty(); left = own_children()) {
      for (const pid_t child : *left)
        ::kill(child, SIGKILL);
      ::waitpid(-1, nullptr, 0);
    }
    ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  }
  WarmStartsTest(const WarmStartsTest&) = delete;
  WarmStartsTest& operator=(const WarmStartsTest&) = delete;

  void zygote_is(const std::string& program) { setup_.program = kBegin + program; }

  /// Asks for this worker of the attempt; its start has an answer when is_answered(worker).
  void start(int worker, int attempt = 0) {
    std::vector<OwnedFd> fds;
    auto command = pack_command(
        {.path = MUSTER_PYTHON, .argv = {"python", "-u", "s.py"}, .env = {"A=1"}, .cpus = {}});
    REQUIRE(command.has_value());
    fds.push_back(std::move(*command));
    starts_.start({.kind = ShimRequest::Kind::Start, .worker = worker, .attempt = attempt},
                  std::move(fds));
  }
  bool is_answered(int worker) const { return cold_.contains(worker) || warm_.contains(worker); }
  /// Starts the worker and runs the loop until there is an answer. True: it is a fork.
  bool starts_warm(int worker, int attempt = 0) {
    start(worker, attempt);
    wait_until("an answer", [&] { return is_answered(worker); });
    return warm_.contains(worker);
  }
  /// The reason of the newest line about a cold start.
  std::string reason() const { return reason_; }

  template <typename Condition>
  void wait_until(const char* what, const Condition& holds) {
    const Instant end = now() + kPatience;
    while (!holds()) {
      INFO(what);
      REQUIRE(now() < end);
      turn();
    }
  }
  void turn() {
    std::vector<pollfd> watched;
    watched.reserve(watched_.size());
    for (const int fd : watched_)
      watched.push_back({.fd = fd, .events = POLLIN, .revents = 0});
    ::poll(watched.data(), watched.size(), 10);
    for (const pollfd& one : watched)
      if (one.revents != 0 && watched_.contains(one.fd)) starts_.on_readable(one.fd);
    reap();
    collect();
  }
  void time_passes(Duration duration) { starts_.on_time(now() + duration); }

  WarmStarts& starts() { return starts_; }
  const std::map<int, WarmWorker>& warm() const { return warm_; }
  int cold_starts(int worker) const { return cold_.contains(worker) ? cold_.at(worker) : 0; }

 private:
  void reap() {
    siginfo_t info{};
    while (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0) {
      starts_.on_end(info);
      info = {};
    }
  }
  void collect() {
    const auto ends = make_shim_pair();
    REQUIRE(ends.has_value());
    const OwnedFd here(ends->first);
    const OwnedFd there(ends->second);
    REQUIRE_FALSE(outbox_.send_to(here.get()));
    while (const auto received = receive_message<ShimReport>(there.get()))
      if (received->message.kind == ShimReport::Kind::StartedCold)
        reason_ = received->message.text.data();
  }

  WarmSetup setup_{.program = {}, .modules = {}};
  WorkerSetup workers_;
  WorkerCgroup cgroup_{""};
  ReportQueue outbox_;
  std::set<int> watched_;
  std::map<int, int> cold_;  // From the worker to the number of its cold starts.
  std::map<int, WarmWorker> warm_;
  std::string reason_;
  WarmStarts starts_{{.setup = setup_,
                      .workers = workers_,
                      .cgroup = cgroup_,
                      .outbox = outbox_,
                      .watch = [this](int fd) { CHECK(watched_.insert(fd).second); },
                      .unwatch = [this](int fd) { watched_.erase(fd); },
                      .start_cold =
                          [this](const ShimRequest& request, const std::vector<OwnedFd>& fds) {
                            CHECK(fds.size() == 1);
                            ++cold_[request.worker];
                          },
                      .adopt =
                          [this](WarmWorker worker) {
                            const int number = worker.number;
                            const bool is_new = warm_.emplace(number, std::move(worker)).second;
                            CHECK(is_new);
                          },
                      .job_is_stopped = [] { return false; }}};
};

constexpr const char* kGood = R"(
shim.send(b"R")
while True:
    control, fds = request()
    if fork_worker(control):
        control.send(b"P")
        os._exit(7 if control.recv(1) == b"G" else 8)
    for fd in fds[:1] + fds[2:]:
        os.close(fd)
    control.close()
    os.wait()
)";

TEST_CASE_METHOD(WarmStartsTest, "warm starts: a fork that answers is the worker",
                 "[system][agent]") {
  zygote_is(kGood);
  for (int worker = 0; worker < 3; ++worker) {
    CHECK(starts_warm(worker));
    CHECK(warm().at(worker).pid != starts().zygote());
  }
  CHECK_FALSE(starts().has_waiting());
}

TEST_CASE_METHOD(WarmStartsTest, "warm starts: what a fake zygote does costs a cold start",
                 "[system][agent]") {
  const std::vector<std::pair<std::string, std::string>> fakes = {
      {"os._exit(3)", "the zygote ended with status 3 while it imported"},
      {"os.abort()", "the zygote was killed by signal 6 (Aborted) while it imported"},
      {"shim.close(); os.close(0); sleep()",
       "the zygote was killed by signal 9 (Killed) while it imported"},
      {"shim.send(b''); sleep()", "the zygote was killed by signal 9 (Killed) while it imported"},
      {"shim.send(b'Nit has \\x1b[1m started \\xff'); sleep()", "it has \\x1b[1m started \\xff"},
      {"shim.send(b'\\0\\xff' * 500); sleep()", "an import has written to the zygote's socket"},
      {"shim.send(b'Ready'); sleep()", "an import has written to the zygote's socket"},
      {"shim.setblocking(True)\nwhile True: shim.send(b'R')",
       "an import has written to the zygote's socket"},
      {"for i in range(100): socket.send_fds(shim, [b'?'], [1] * 200)",
       "an import has written to the zygote's socket"},
      {"shim.send(b'R'); c, f = request(); shim.send(b'Sx has changed'); sleep()", "x has changed"},
      {"shim.send(b'R'); request()[0].close(); sleep()",
       "a fork of the zygote has ended too early"},
      {"shim.send(b'R'); request()[0].send(b'P'); sleep()",  // It is no fork.
       "a fork of the zygote has ended too early"},
      {"shim.send(b'R'); control, fds = request()\n"
       "if fork_worker(control): control.send(b'garbage' * 100); sleep()\nsleep()",
       "a fork of the zygote has ended too early"},
      {"shim.send(b'R'); control, fds = request()\n"  // A child of the zygote, not of the shim.
       "if os.fork() == 0: os.setsid(); control.send(b'P'); sleep()\nsleep()",
       "a fork of the zygote has ended too early"},
      {"shim.send(b'R'); control, fds = request()\n"  // It leads no session.
       "if os.fork() == 0:\n    if os.fork() == 0: time.sleep(0.5); control.send(b'P'); sleep()\n"
       "    os._exit(0)\nos.wait(); sleep()",
       "a fork of the zygote has ended too early"},
  };
  for (const auto& [fake, expected] : fakes) {
    const std::size_t before = open_files();
    {
      WarmStartsTest one;
      one.zygote_is(fake);
      INFO(fake);
      CHECK_FALSE(one.starts_warm(0));
      CHECK(one.cold_starts(0) == 1);
      one.wait_until("the line", [&] { return !one.reason().empty(); });
      CHECK(one.reason() == expected);
      CHECK_FALSE(one.starts().has_waiting());
    }
    CHECK(open_files() == before);
  }
}

TEST_CASE_METHOD(WarmStartsTest, "warm starts: descriptors that come with an answer are dropped",
                 "[system][agent]") {
  zygote_is(R"(
shim.send(b"R")
control, fds = request()
if fork_worker(control):
    socket.send_fds(control, [b"P"], [1] * 200)
    control.recv(1)
    sleep()
sleep()
)");
  const std::size_t before = open_files();
  CHECK(starts_warm(0));
  // The zygote's socket, pidfd and status, and the worker's pidfd.
  CHECK(open_files() == before + 4);
}

TEST_CASE_METHOD(WarmStartsTest,
                 "warm starts: one that is silent is killed, and its fork runs nothing",
                 "[system][agent]") {
  zygote_is(R"(
shim.send(b"R")
control, fds = request()
if fork_worker(control):
    signal.pause()
sleep()
)");
  start(0);
  start(1);
  wait_until("the zygote to be ready",
             [this] { return starts().next_deadline() < now() + ZygoteLife::kForkLimit; });
  const pid_t zygote = starts().zygote();
  time_passes(ZygoteLife::kForkLimit - 1s);
  CHECK_FALSE(is_answered(0));
  time_passes(ZygoteLife::kForkLimit);
  CHECK(cold_starts(0) == 1);
  CHECK(cold_starts(1) == 1);
  turn();
  CHECK(reason() == "the zygote has not answered within 5 seconds");
  CHECK(starts().zygote() != zygote);  // A new one.
}

TEST_CASE_METHOD(WarmStartsTest, "warm starts: a stop forgets the starts that wait",
                 "[system][agent]") {
  zygote_is("sleep()");
  start(0);
  starts().stop();
  turn();
  CHECK_FALSE(is_answered(0));
  CHECK_FALSE(starts().has_waiting());
  CHECK(starts().zygote() == -1);
}

TEST_CASE_METHOD(WarmStartsTest, "warm starts: an abort starts cold what waits",
                 "[system][agent]") {
  zygote_is("sleep()");
  start(0);
  starts().abort();
  CHECK(cold_starts(0) == 1);
}

}  // namespace
}  // namespace muster
