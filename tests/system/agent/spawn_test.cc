#include "agent/posix/spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace muster {
namespace {

/// A start whose result is known. After a failure there is no child.
struct Spawned {
  pid_t pid = -1;
  int pidfd = -1;
  int error = 0;
  SpawnStep step = SpawnStep::Clone;
};

SpawnResult result_of(const BegunSpawn& child) {
  pollfd wait{child.status.get(), POLLIN, 0};
  REQUIRE(::poll(&wait, 1, 20'000) == 1);
  const auto result = spawn_result(child.status.get());
  REQUIRE(result.has_value());
  return *result;
}

struct Command {
  std::string path;
  std::vector<std::string> words;
  SignalState signals;
  SpawnOptions options;
  std::vector<char*> argv;
  std::vector<char*> env;

  explicit Command(std::vector<std::string> w) : path(w[0]), words(std::move(w)) {
    ::sigemptyset(&signals.mask);
    ::sigemptyset(&signals.ignored);
  }
  Spawned start() {
    BegunSpawn child = begin();
    REQUIRE(child.error == 0);
    const SpawnResult result = result_of(child);
    if (result.error != 0) {
      REQUIRE(::waitpid(child.pid, nullptr, 0) == child.pid);
      child.pidfd.reset();
    }
    return {child.pid, child.pidfd.release(), result.error, result.step};
  }
  BegunSpawn begin() {
    start_options();
    return begin_spawn(options);
  }
  void start_options() {
    argv.clear();
    for (std::string& word : words)
      argv.push_back(word.data());
    argv.push_back(nullptr);
    static std::string path_variable = "PATH=/usr/bin:/bin";
    env = {path_variable.data(), nullptr};
    options.path = path.c_str();
    options.argv = argv.data();
    options.env = env.data();
    options.signals = &signals;
  }
};

siginfo_t end_of(const Spawned& child) {
  pollfd wait{child.pidfd, POLLIN, 0};
  REQUIRE(::poll(&wait, 1, 20'000) == 1);
  siginfo_t info{};
  REQUIRE(::waitid(P_PIDFD, static_cast<id_t>(child.pidfd), &info, WEXITED) == 0);
  ::close(child.pidfd);
  return info;
}

siginfo_t end_of_shell(const std::string& script) {
  const Spawned child = Command({"/bin/sh", "-c", script}).start();
  REQUIRE(child.error == 0);
  return end_of(child);
}

TEST_CASE("spawn: the exit status and the signal are told apart", "[unit][agent]") {
  siginfo_t info = end_of_shell("exit 9");
  CHECK(info.si_code == CLD_EXITED);
  CHECK(info.si_status == 9);
  info = end_of_shell("kill -9 $$");
  CHECK(info.si_code == CLD_KILLED);
  CHECK(info.si_status == 9);
}

TEST_CASE("spawn: exec's own error comes back, and no zombie stays", "[unit][agent]") {
  const Spawned child = Command({"/nonexistent"}).start();
  CHECK(child.error == ENOENT);
  CHECK(child.step == SpawnStep::Exec);
  CHECK(std::string(to_string(child.step)) == "execve");
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
}

TEST_CASE("spawn: the worker leads its own session, with no signal blocked or ignored",
          "[unit][agent]") {
  ::signal(SIGPIPE, SIG_IGN);
  // Runs awk, not a shell: dash blocks signals for moments. Fields 1, 5 and 6 of stat are the pid,
  // the process group and the session.
  Command command(
      {"/usr/bin/awk",
       "/^Sig(Blk|Ign):.0000000000000000/ {n++} FILENAME ~ /stat$/ {n += $5 == $1 && $6 == $1} "
       "END {exit n != 3}",
       "/proc/self/status", "/proc/self/stat"});
  const Spawned child = command.start();
  REQUIRE(child.error == 0);
  CHECK(end_of(child).si_status == 0);
  ::signal(SIGPIPE, SIG_DFL);
}

TEST_CASE("spawn: the worker has the CPUs that it is given, and muster keeps all of its own",
          "[unit][agent]") {
  cpu_set_t ours;
  REQUIRE(::sched_getaffinity(0, sizeof ours, &ours) == 0);
  std::size_t last = 0;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &ours)) last = cpu;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  Command command({"/bin/grep", "-q", "^Cpus_allowed_list:.*[^0-9-]" + std::to_string(last) + "$",
                   "/proc/self/status"});
  command.options.cpu_mask = std::as_bytes(std::span(&one, 1));
  const Spawned child = command.start();
  REQUIRE(child.error == 0);
  CHECK(end_of(child).si_status == 0);
  cpu_set_t after;
  REQUIRE(::sched_getaffinity(0, sizeof after, &after) == 0);
  CHECK(CPU_EQUAL(&ours, &after));
}

TEST_CASE("spawn: the worker has the limit of open files that it is given", "[unit][agent]") {
  rlimit ours{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &ours) == 0);
  const rlimit theirs{.rlim_cur = 37, .rlim_max = ours.rlim_max};
  Command command({"/bin/sh", "-c", "test $(ulimit -Sn) = 37"});
  command.options.file_limit = &theirs;
  const Spawned child = command.start();
  REQUIRE(child.error == 0);
  CHECK(end_of(child).si_status == 0);
  rlimit after{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &after) == 0);
  CHECK(after.rlim_cur == ours.rlim_cur);
}

TEST_CASE("spawn: CPUs that do not exist are an error that names its step", "[unit][agent]") {
  const unsigned long none = 0;
  Command command({"/bin/true"});
  command.options.cpu_mask = std::as_bytes(std::span(&none, 1));
  const Spawned child = command.start();
  CHECK(child.error == EINVAL);
  CHECK(std::string(to_string(child.step)) == "sched_setaffinity");
}

TEST_CASE("spawn: signals that muster inherited blocked or ignored are so in the worker",
          "[unit][agent]") {
  // Runs awk, not a shell: dash unblocks all signals when it begins. SIGUSR1 is bit 9, SIGHUP bit
  // 0.
  Command command({"/usr/bin/awk",
                   "/SigBlk:.0000000000000200/ {n++} /SigIgn:.0000000000000001/ {n++} "
                   "END {exit n != 2}",
                   "/proc/self/status"});
  ::sigaddset(&command.signals.mask, SIGUSR1);
  ::sigaddset(&command.signals.ignored, SIGHUP);
  const Spawned child = command.start();
  REQUIRE(child.error == 0);
  CHECK(end_of(child).si_status == 0);
}

TEST_CASE("spawn: the worker inherits its streams and no other descriptor", "[unit][agent]") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  Command command({"/bin/sh", "-c", "ls /proc/self/fd; echo err >&2"});
  command.options.fds = {-1, ends[1], ends[1]};
  const Spawned child = command.start();
  REQUIRE(child.error == 0);
  ::close(ends[1]);
  CHECK(end_of(child).si_status == 0);
  std::string text(4096, '\0');
  std::size_t bytes = 0;
  for (ssize_t n = 1; n > 0 && bytes < text.size(); bytes += static_cast<std::size_t>(n))
    n = ::read(ends[0], text.data() + bytes, text.size() - bytes);
  ::close(ends[0]);
  CHECK(text.substr(0, bytes) == "0\n1\n2\n3\nerr\n");  // ls has opened 3 itself.
}

TEST_CASE("spawn: resetting the signals that are not default is enough", "[unit][agent]") {
  ::signal(SIGUSR2, SIG_IGN);
  const sigset_t not_default = signals_not_default();
  CHECK(::sigismember(&not_default, SIGUSR2) == 1);
  CHECK(::sigismember(&not_default, SIGWINCH) == 0);
  // SIGUSR2 is bit 11. SIGHUP is bit 0: only the worker ignores it.
  Command command({"/usr/bin/awk",
                   "/SigIgn:.0000000000000001/ {n++} /SigCgt:.0000000000000000/ {n++} "
                   "END {exit n != 2}",
                   "/proc/self/status"});
  ::sigaddset(&command.signals.ignored, SIGHUP);
  command.options.not_default = &not_default;
  const Spawned child = command.start();
  ::signal(SIGUSR2, SIG_DFL);
  REQUIRE(child.error == 0);
  CHECK(end_of(child).si_status == 0);
}

TEST_CASE("spawn: a start that is not waited for says when the program runs", "[unit][agent]") {
  Command command({"/bin/sh", "-c", "exit 9"});
  BegunSpawn child = command.begin();
  REQUIRE(child.error == 0);
  CHECK(result_of(child).error == 0);
  const siginfo_t info = end_of({.pid = child.pid, .pidfd = child.pidfd.release()});
  CHECK(info.si_code == CLD_EXITED);
  CHECK(info.si_status == 9);
}

TEST_CASE("spawn: a start that is not waited for says why it failed", "[unit][agent]") {
  Command command({"/no/such/program"});
  BegunSpawn child = command.begin();
  REQUIRE(child.error == 0);
  const SpawnResult result = result_of(child);
  CHECK(result.error == ENOENT);
  CHECK(result.step == SpawnStep::Exec);
  CHECK(end_of({.pid = child.pid, .pidfd = child.pidfd.release()}).si_status == 127);
}

TEST_CASE("spawn: a failure in the child does not change the parent's errno", "[unit][agent]") {
  // The child shares this process's memory. If it used calls of the C library, they would write
  // errno.
  for (int turn = 0; turn < 50; ++turn) {
    Command command({"/no/such/program"});
    errno = 0;
    BegunSpawn child = command.begin();
    REQUIRE(child.error == 0);
    pollfd wait{child.pidfd.get(), POLLIN, 0};
    const int ended = ::poll(&wait, 1, 20'000);
    const int seen = errno;
    CHECK(seen == 0);
    REQUIRE(ended == 1);
    REQUIRE(::waitpid(child.pid, nullptr, 0) == child.pid);
  }
}

TEST_CASE("spawn: children that start at the same time have their own programs and streams",
          "[unit][agent]") {
  constexpr int kChildren = 40;
  std::vector<Command> commands;
  std::vector<BegunSpawn> children;
  std::vector<std::array<int, 2>> pipes(kChildren);
  commands.reserve(kChildren);
  for (int i = 0; i < kChildren; ++i) {
    auto& ends = pipes[static_cast<std::size_t>(i)];
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    Command& command = commands.emplace_back(
        std::vector<std::string>{"/bin/sh", "-c", "echo " + std::to_string(i)});
    command.options.fds = {-1, ends[1], -1};
    children.push_back(command.begin());
    REQUIRE(children.back().error == 0);
  }
  for (int i = 0; i < kChildren; ++i) {
    const auto& ends = pipes[static_cast<std::size_t>(i)];
    BegunSpawn& child = children[static_cast<std::size_t>(i)];
    ::close(ends[1]);
    std::array<char, 16> text{};
    CHECK(::read(ends[0], text.data(), text.size() - 1) > 0);
    CHECK(text.data() == std::to_string(i) + "\n");
    ::close(ends[0]);
    CHECK(end_of({.pid = child.pid, .pidfd = child.pidfd.release()}).si_status == 0);
  }
}

TEST_CASE("spawn: the owner of the command's memory lives until the program runs",
          "[unit][agent]") {
  std::weak_ptr<const void> seen;
  {
    Command command({"/bin/true"});
    auto owner = std::make_shared<const int>(0);
    seen = owner;
    command.options.owner = std::move(owner);
    BegunSpawn child = command.begin();
    REQUIRE(child.error == 0);
    command.options.owner.reset();
    CHECK_FALSE(seen.expired());
    CHECK(result_of(child).error == 0);
    child.memory.reset();
    CHECK(seen.expired());
    CHECK(end_of({.pid = child.pid, .pidfd = child.pidfd.release()}).si_status == 0);
  }
}

}  // namespace
}  // namespace muster
