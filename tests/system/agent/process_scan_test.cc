#include "agent/posix/process_scan.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "agent/posix/job_cleanup.h"

namespace muster {
namespace {

/// A child that leads a session and has a child of its own; both wait for a signal.
struct Family {
  pid_t parent = -1;
  pid_t child = -1;

  Family() {
    std::array<int, 2> ready{};
    REQUIRE(::pipe(ready.data()) == 0);
    parent = ::fork();
    if (parent == 0) {
      ::setsid();
      const pid_t grandchild = ::fork();
      if (grandchild != 0) (void)!::write(ready[1], &grandchild, sizeof grandchild);
      for (;;)
        ::pause();
    }
    REQUIRE(::read(ready[0], &child, sizeof child) == sizeof child);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Family() {
    ::kill(child, SIGKILL);
    ::kill(parent, SIGKILL);
    ::waitpid(parent, nullptr, 0);
  }
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;
};

bool no_mark(std::string_view) {
  return false;
}

bool has(const std::vector<Process>& processes, pid_t pid) {
  return std::any_of(processes.begin(), processes.end(),
                     [pid](const Process& process) { return process.pid == pid; });
}

TEST_CASE("process scan: descendants of every depth are found, spared ones are not",
          "[unit][agent]") {
  const Family family;
  const auto all = descendants(::getpid(), {});
  CHECK(has(all, family.parent));
  CHECK(has(all, family.child));
  const auto none = descendants(::getpid(), {family.parent});
  CHECK_FALSE(has(none, family.parent));
  CHECK_FALSE(has(none, family.child));
}

TEST_CASE("process scan: a process handles a signal that it catches, unless it is a shell",
          "[unit][agent]") {
  ::signal(SIGUSR1, SIG_IGN);
  CHECK_FALSE(handles_signal(::getpid(), SIGUSR1));
  ::signal(SIGUSR1, [](int) {});
  CHECK(handles_signal(::getpid(), SIGUSR1));
  CHECK_FALSE(handles_signal(::getpid(), SIGUSR2));
  ::signal(SIGUSR1, SIG_DFL);
  CHECK_FALSE(handles_signal(::getpid(), SIGUSR1));
  CHECK_FALSE(handles_signal(999'999'999, SIGUSR1));

  std::array<int, 2> ready{};
  REQUIRE(::pipe(ready.data()) == 0);
  const pid_t shell = ::fork();
  if (shell == 0) {
    ::dup2(ready[1], 1);
    ::execl("/bin/sh", "sh", "-c", "trap : USR1; echo; while :; do sleep 1; done", nullptr);
    ::_exit(127);
  }
  char byte = 0;
  CHECK(::read(ready[0], &byte, 1) == 1);
  CHECK(can_outlive(shell, SIGUSR1));
  CHECK_FALSE(handles_signal(shell, SIGUSR1));
  ::kill(shell, SIGKILL);
  ::waitpid(shell, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE("process scan: a process that ignores or blocks a signal can outlive it",
          "[unit][agent]") {
  for (const bool ignores : {false, true}) {
    if (ignores) ::signal(SIGUSR1, SIG_IGN);
    const Family family;  // Both processes inherit the ignored signals.
    ::signal(SIGUSR1, SIG_DFL);
    CHECK(can_outlive(family.parent, SIGUSR1) == ignores);
    CHECK_FALSE(can_outlive(family.parent, SIGUSR2));
    CHECK_FALSE(can_outlive(family.parent, SIGKILL));
  }
  sigset_t set;
  sigset_t before;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGUSR1);
  ::sigprocmask(SIG_BLOCK, &set, &before);
  CHECK(can_outlive(::getpid(), SIGUSR1));
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  CHECK_FALSE(can_outlive(::getpid(), SIGUSR1));
  ::signal(SIGUSR1, [](int) {});
  CHECK(can_outlive(::getpid(), SIGUSR1));
  ::signal(SIGUSR1, SIG_DFL);
}

TEST_CASE("process scan: only direct children are this process's own", "[unit][agent]") {
  const Family family;
  CHECK(own_children()->contains(family.parent));
  CHECK_FALSE(own_children()->contains(family.child));
}

TEST_CASE("process scan: without a free descriptor it does not claim that there is no child",
          "[unit][agent]") {
  const Family family;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{0, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const bool has_children = has_children_but({});
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(has_children);
}

TEST_CASE("process scan: a job's processes are found by session", "[unit][agent]") {
  const Family family;
  const auto found = processes_of_job({{family.parent, {}}}, no_mark);
  CHECK(has(found, family.parent));
  CHECK(has(found, family.child));
  CHECK_FALSE(has(processes_of_job({}, no_mark), family.child));
}

TEST_CASE("process scan: a job's processes are found by their parent, and by a session of theirs",
          "[unit][agent]") {
  const Family family;
  // `inner` is not in a worker's session and has no mark; its parent `outer` leads such a session.
  // `innermost` is in the session of `inner`.
  std::array<int, 2> ready{};
  REQUIRE(::pipe(ready.data()) == 0);
  const pid_t outer = ::fork();
  if (outer == 0) {
    ::setsid();
    const pid_t inner = ::fork();
    if (inner == 0) {
      ::setsid();
      const pid_t innermost = ::fork();
      if (innermost != 0) {
        const std::array<pid_t, 2> pids{::getpid(), innermost};
        (void)!::write(ready[1], pids.data(), sizeof pids);
      }
    }
    for (;;)
      ::pause();
  }
  std::array<pid_t, 2> pids{};
  REQUIRE(::read(ready[0], pids.data(), sizeof pids) == sizeof pids);
  const auto found = processes_of_job({{outer, {}}}, no_mark);
  CHECK(has(found, outer));
  CHECK(has(found, pids[0]));
  CHECK(has(found, pids[1]));
  CHECK_FALSE(has(found, family.parent));
  CHECK_FALSE(has(found, ::getpid()));
  for (const pid_t pid : {pids[1], pids[0], outer})
    ::kill(pid, SIGKILL);
  ::waitpid(outer, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE("process scan: a job's processes are found by a mark in their environment",
          "[unit][agent]") {
  const pid_t pid = ::fork();
  if (pid == 0) {
    const char* argv[] = {"sleep", "60", nullptr};
    const char* env[] = {"PATH=/usr/bin:/bin", "MUSTER_JOB=this1", nullptr};
    ::execve("/bin/sleep", const_cast<char**>(argv), const_cast<char**>(env));
    ::_exit(127);
  }
  // The environment changes only with execve: waits for that, within the test's own limit.
  const auto marked = [](std::string_view variable) { return variable == "MUSTER_JOB=this1"; };
  while (!has(processes_of_job({}, marked), pid)) {
    int status = 0;
    REQUIRE(::waitpid(pid, &status, WNOHANG) == 0);
  }
  CHECK_FALSE(has(processes_of_job({}, no_mark), pid));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

TEST_CASE("process scan: a session whose number another process has taken over is not the job's",
          "[unit][agent]") {
  Family family;
  const std::uint64_t start = ticks_since_boot();
  const auto finds = [&](const JobSession& session) {
    return has(processes_of_job({{family.parent, session}}, no_mark), family.parent);
  };
  // A scan reads start times for a limited time. Without its start time a process is found, or not
  // found, for that reason alone: asks again.
  const auto answers = [&](bool expected, const JobSession& session) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (finds(session) != expected)
      if (std::chrono::steady_clock::now() > deadline) return false;
    return true;
  };
  CHECK(answers(true, {.start = start, .end = {}}));
  CHECK(answers(false, {.start = 1, .end = {}}));            // The leader is another process.
  CHECK(answers(true, {.start = start, .end = start + 1}));  // The process began before the end.
  CHECK(answers(false, {.start = 1, .end = 2}));             // The process began after the end.
}

TEST_CASE("process scan: a signal goes to the process that was seen, and to no other",
          "[unit][agent]") {
  Family family;
  Process seen{.pid = family.parent, .parent = ::getpid(), .session = family.parent};
  CHECK(signal_process(seen, 0));
  ++seen.session;  // As if another process had this pid now.
  CHECK_FALSE(signal_process(seen, 0));

  const Process child{.pid = family.child, .parent = 1, .session = ::getsid(family.child)};
  CHECK(signal_process(child, 0));  // As if its parent had ended since the scan.
}

TEST_CASE("process scan: parent, session and threads of a process are those of the kernel",
          "[unit][agent]") {
  const Family family;
  const std::vector<Process> all = all_processes();
  const auto seen = std::find_if(all.begin(), all.end(),
                                 [&](const Process& one) { return one.pid == family.child; });
  REQUIRE(seen != all.end());
  CHECK(seen->parent == family.parent);
  CHECK(seen->session == ::getsid(family.child));
  CHECK(seen->threads == 1);
  CHECK(is_alive(*seen));
}

}  // namespace
}  // namespace muster
