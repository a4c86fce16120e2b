#include "agent/posix/job_cleanup.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

namespace muster {
namespace {

constexpr int kRescanMs = 20;  // Until the next death: for what was born during the last scan.
constexpr int kDescendantScansMax = 1500;  // 30 s of these.
constexpr int kScansMax = 600;
constexpr int kPauseMs = 5;
// A process that was being born during one scan is seen by the next.
constexpr int kEmptyScansToBelieve = 3;

bool has_children_but(const std::set<pid_t>& spared) {
  const std::set<pid_t> mine = own_children();
  return std::any_of(mine.begin(), mine.end(),
                     [&spared](pid_t pid) { return !spared.contains(pid); });
}

void reap() {
  siginfo_t info{};
  while (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0)
    info = {};
}

void wait_for_a_death() {
  constexpr timespec kTimeout{0, kRescanMs * 1'000'000L};
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  ::sigtimedwait(&child, nullptr, &kTimeout);
}

/// Stops all of it before one is killed: whoever dies can no longer lead to its children, and who
/// stands still has no further ones.
std::set<pid_t> stop_job(const std::set<pid_t>& sessions, const EnvironmentMark& mark) {
  std::set<pid_t> stopped;
  for (std::size_t before = 1; before != stopped.size();) {
    before = stopped.size();
    for (const Process& process : processes_of_job(sessions, mark))
      if (stopped.insert(process.pid).second) ::kill(process.pid, SIGSTOP);
  }
  return stopped;
}

}  // namespace

void kill_descendants(const std::set<pid_t>& spared) {
  reap();
  for (int scan = 0; scan < kDescendantScansMax && has_children_but(spared); ++scan) {
    for (const Process& process : descendants(::getpid(), spared))
      ::kill(process.pid, SIGKILL);
    wait_for_a_death();
    reap();
  }
}

void kill_job(const std::set<pid_t>& sessions, const EnvironmentMark& mark) {
  int empty = 0;
  for (int scan = 0; scan < kScansMax && empty < kEmptyScansToBelieve; ++scan) {
    const std::set<pid_t> stopped = stop_job(sessions, mark);
    empty = stopped.empty() ? empty + 1 : 0;
    for (const pid_t pid : stopped)
      ::kill(pid, SIGKILL);
    ::poll(nullptr, 0, kPauseMs);
  }
}

}  // namespace muster
