#include "agent/posix/helper_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

#include <catch2/catch.hpp>

#include "agent/posix/process_activity.h"
#include "agent/posix/process_scan.h"

namespace muster {
namespace {

bool has_ended(const HelperProcess& helper, int timeout_ms) {
  pollfd ended{.fd = helper.pidfd(), .events = POLLIN, .revents = 0};
  return ::poll(&ended, 1, timeout_ms) == 1;
}

Result<HelperProcess> shell(const std::string& line) {
  return HelperProcess::start({"/bin/sh", "-c", line}, {"PATH=/bin:/usr/bin", "NAME=value"});
}

TEST_CASE("helper_process: both of its outputs are kept, in their order", "[unit][posix]") {
  auto helper = shell("echo $NAME; echo to stderr >&2; cat");
  REQUIRE(helper.has_value());
  REQUIRE(has_ended(*helper, 60'000));  // cat ends, too, as stdin is empty.
  CHECK(helper->finish());
  CHECK(helper->output(1000) == "value\nto stderr\n");
  CHECK(helper->output(3) == "val");
}

TEST_CASE("helper_process: a program that fails or does not end is no success", "[unit][posix]") {
  auto fails = shell("exit 3");
  REQUIRE(fails.has_value());
  REQUIRE(has_ended(*fails, 60'000));
  CHECK_FALSE(fails->finish());
  auto stays = shell("exec sleep 1000");
  REQUIRE(stays.has_value());
  CHECK_FALSE(has_ended(*stays, 0));
  CHECK_FALSE(stays->finish());
  CHECK(::waitid(P_ALL, 0, nullptr, WEXITED | WNOHANG) == -1);  // No child is left.
}

TEST_CASE("helper_process: one that hangs is killed with what it has started", "[unit][posix]") {
  const auto child_of = [](HelperProcess& helper) {
    std::string text;
    for (int tries = 0; tries < 6'000 && !text.ends_with('\n'); ++tries) {
      text = helper.output(100);
      ::usleep(10'000);
    }
    return static_cast<pid_t>(std::stol(text));
  };
  const auto lives = [](pid_t pid) {
    const auto process = read_process(pid);
    return process && is_alive(*process);
  };
  auto hangs = shell("sleep 1000 & echo $!; wait");
  REQUIRE(hangs.has_value());
  const pid_t child = child_of(*hangs);
  REQUIRE(lives(child));
  CHECK_FALSE(hangs->finish());
  for (int tries = 0; tries < 6'000 && lives(child); ++tries)
    ::usleep(10'000);
  CHECK_FALSE(lives(child));
  auto leaves = shell("sleep 1000 & echo $!");
  REQUIRE(leaves.has_value());
  REQUIRE(has_ended(*leaves, 60'000));
  const pid_t left = child_of(*leaves);
  CHECK(leaves->finish());
  CHECK(lives(left));
  ::kill(left, SIGKILL);
}

TEST_CASE("helper_process: a program that cannot be executed says why", "[unit][posix]") {
  auto helper = HelperProcess::start({"/none"}, {});
  REQUIRE(helper.has_value());
  REQUIRE(has_ended(*helper, 60'000));
  CHECK_FALSE(helper->finish());
  CHECK(helper->start_error() == boost::system::errc::no_such_file_or_directory);
  auto runs = shell("exit 127");
  REQUIRE(runs.has_value());
  REQUIRE(has_ended(*runs, 60'000));
  CHECK_FALSE(runs->start_error());
}

/// A child that leads a session if `leads` is true. It stops itself.
struct Child {
  pid_t pid;
  explicit Child(bool leads) : pid(::fork()) {
    if (pid == 0) {
      if (leads) ::setsid();
      ::raise(SIGSTOP);
      for (;;)
        ::pause();
    }
    int status = 0;
    REQUIRE(::waitpid(pid, &status, WUNTRACED) == pid);  // The child has stopped after setsid().
  }
  ~Child() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
};

TEST_CASE("helper_process: a signal for a worker or what descends from it", "[unit][posix]") {
  const Child worker(true);
  const Child child(false);  // A child of this process, not of the worker.
  CHECK(process_state(worker.pid) == 'T');
  CHECK(process_state(0x3fffffff) == '?');
  CHECK(signal_family_member(worker.pid, {worker.pid}, 0) == worker.pid);
  CHECK(signal_family_member(child.pid, {worker.pid}, SIGKILL) == 0);
  CHECK(signal_family_member(child.pid, {}, SIGKILL) == 0);
  CHECK(signal_family_member(1, {worker.pid, 1}, 0) == 0);
  CHECK(signal_family_member(0x3fffffff, {0x3fffffff}, 0) == 0);  // There is no such process.
  CHECK(process_state(child.pid) != 'Z');
  CHECK(signal_family_member(child.pid, {::getpid(), worker.pid}, SIGKILL) == ::getpid());
  siginfo_t info{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED | WNOWAIT) == 0);
  CHECK(info.si_status == SIGKILL);
  CHECK(signal_family_member(child.pid, {child.pid}, 0) == 0);  // A dead process has no worker.
}

/// A worker with descendants. All of them end with the worker.
struct WorkerFamily {
  /// What the worker does: it starts descendants, and writes the pid of the last one into `report`.
  using Run = void (*)(int report);

  pid_t worker = -1;
  pid_t last = -1;

  explicit WorkerFamily(Run run) {
    std::array<int, 2> report{};
    REQUIRE(::pipe(report.data()) == 0);
    worker = ::fork();
    if (worker == 0) {
      ::setsid();
      run(report[1]);
      for (;;)
        ::pause();
    }
    REQUIRE(::read(report[0], &last, sizeof last) == sizeof last);
    ::close(report[0]);
    ::close(report[1]);
  }
  ~WorkerFamily() {
    ::kill(last, SIGKILL);
    ::kill(worker, SIGKILL);
    ::waitpid(worker, nullptr, 0);
  }
  WorkerFamily(const WorkerFamily&) = delete;
  WorkerFamily& operator=(const WorkerFamily&) = delete;
};

void write_pid(int report, pid_t pid) {
  (void)!::write(report, &pid, sizeof pid);
}

// Starts ten processes, each the parent of the next, and each in a session of its own.
void start_line(int report) {
  for (int i = 0; i < 10; ++i) {
    if (::fork() != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::setsid();
  }
  write_pid(report, ::getpid());
}

// Starts a process in the worker's session whose parent has ended.
void start_orphan(int report) {
  std::array<int, 2> pids{};
  if (::pipe(pids.data()) != 0) return;
  const pid_t parent = ::fork();
  if (parent == 0) {
    const pid_t orphan = ::fork();
    if (orphan == 0) return;
    write_pid(pids[1], orphan);
    ::_exit(0);
  }
  ::waitpid(parent, nullptr, 0);
  pid_t orphan = -1;
  if (::read(pids[0], &orphan, sizeof orphan) == sizeof orphan) write_pid(report, orphan);
}

TEST_CASE("helper_process: descendants in other sessions, and orphans in a worker's session",
          "[unit][posix]") {
  const Child other(true);
  for (const WorkerFamily::Run run : {start_line, start_orphan}) {
    const WorkerFamily family(run);
    CHECK(signal_family_member(family.last, {other.pid, family.worker}, 0) == family.worker);
    CHECK(signal_family_member(family.last, {other.pid}, SIGKILL) == 0);
    CHECK(process_state(family.last) != 'Z');
  }
}

TEST_CASE("process_activity: a stopped worker, its command line and its threads", "[unit][posix]") {
  const Child worker(true);
  const auto activity = family_activity({{LocalRank{0}, worker.pid}, {LocalRank{1}, 0x3fffffff}});
  REQUIRE(activity.size() == 2);
  CHECK(activity[0].stopped);
  CHECK_FALSE(activity[1].stopped);  // There is no such process.
  CHECK(activity[1].bytes_written == 0);
  CHECK_THAT(thread_table(worker.pid), Catch::Contains("state T"));
  CHECK_THAT(thread_table(0x3fffffff), Catch::Contains("it has ended"));
  CHECK_FALSE(program_text(worker.pid).empty());
  CHECK(executable_of(worker.pid) == executable_of(::getpid()));
}

TEST_CASE("process_activity: what descendants write and compute counts", "[unit][posix]") {
  auto helper = shell("(head -c 100000 /dev/zero; exec sleep 1000) & wait");
  REQUIRE(helper.has_value());
  while (helper->output(200'000).size() < 100'000)
    REQUIRE_FALSE(has_ended(*helper, 1));
  // The leader is the descendant of this process that has descendants itself. Its sum includes the
  // bytes of head only after it has waited for head, which is after the last byte.
  const auto written = [] {
    pid_t leader = 0;
    for (const pid_t pid : family_of(::getpid()))
      if (!family_of(pid).empty()) leader = pid;
    return leader == 0 ? 0 : family_activity({{LocalRank{0}, leader}})[0].bytes_written;
  };
  while (written() < 100'000)
    REQUIRE_FALSE(has_ended(*helper, 1));
}

}  // namespace
}  // namespace muster
