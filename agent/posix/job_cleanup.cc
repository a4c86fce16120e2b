#include "agent/posix/job_cleanup.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <vector>

#include "agent/posix/child_signals.h"

namespace muster {
namespace {

// The longest wait for the end of a child. A new scan finds children born during the last one.
constexpr std::chrono::milliseconds kRescan{20};
constexpr int kDescendantScansMax = 1500;  // 30 s with kRescan.
constexpr int kScansMax = 600;
constexpr int kPauseMs = 5;
constexpr int kPlainRounds = 3;     // Later rounds stop all processes before they kill one.
constexpr int kStopScansMax = 100;  // stop_all() scans until a scan finds nothing new.
// A scan can miss a process that is born meanwhile; the next scan finds it.
constexpr int kEmptyScansToBelieve = 3;

void reap() {
  siginfo_t info{};
  while (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0)
    info = {};
}

/// Stops all processes that `find` returns. Killing them one by one could miss some: a dead process
/// does not lead to its children any more. A stopped process makes no more children.
std::vector<Process> stop_all(const std::function<std::vector<Process>()>& find) {
  std::set<pid_t> stopped;
  std::vector<Process> found;
  std::size_t before = 1;
  for (int scan = 0; scan < kStopScansMax && before != stopped.size(); ++scan) {
    before = stopped.size();
    found = find();
    for (const Process& process : found)
      if (stopped.insert(process.pid).second) signal_process(process, SIGSTOP);
  }
  return found;
}

}  // namespace

bool has_children_but(const std::set<pid_t>& spared) {
  const auto mine = own_children();
  siginfo_t info{};
  if (!mine)  // No descriptor is left for /proc.
    return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
  return std::any_of(mine->begin(), mine->end(),
                     [&spared](pid_t pid) { return !spared.contains(pid); });
}

pid_t DescendantKiller::round(const std::set<pid_t>& spared) {
  cgroup_.kill();
  const auto find = [&spared] { return descendants(::getpid(), spared); };
  const std::vector<Process> found = rounds_++ < kPlainRounds ? find() : stop_all(find);
  for (const Process& process : found)
    signal_process(process, SIGKILL);
  return found.empty() ? 0 : found.back().pid;
}

void kill_descendants(const std::set<pid_t>& spared, const WorkerCgroup& cgroup) {
  DescendantKiller killer(cgroup);
  reap();
  for (int scan = 0; scan < kDescendantScansMax && has_children_but(spared); ++scan) {
    killer.round(spared);
    wait_for_child(kRescan);
    reap();
  }
  cgroup.remove();
}

void kill_job(const JobSessions& sessions, const EnvironmentMark& mark,
              const WorkerCgroup& cgroup) {
  int empty = 0;
  for (int scan = 0; scan < kScansMax && empty < kEmptyScansToBelieve; ++scan) {
    cgroup.kill();
    const std::vector<Process> stopped =
        stop_all([&sessions, &mark] { return processes_of_job(sessions, mark); });
    empty = stopped.empty() ? empty + 1 : 0;
    for (const Process& process : stopped)
      signal_process(process, SIGKILL);
    ::poll(nullptr, 0, kPauseMs);
  }
  cgroup.remove();
}

}  // namespace muster
