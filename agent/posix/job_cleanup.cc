#include "agent/posix/job_cleanup.h"

#include <poll.h>
#include <signal.h>

namespace muster {
namespace {

constexpr int kScansMax = 600;
constexpr int kPauseMs = 5;
// A process that was being born during one scan is seen by the next.
constexpr int kEmptyScansToBelieve = 3;

}  // namespace

void kill_job(const std::set<pid_t>& sessions, const EnvironmentMark& mark) {
  int empty = 0;
  for (int scan = 0; scan < kScansMax && empty < kEmptyScansToBelieve; ++scan) {
    const auto processes = processes_of_job(sessions, mark);
    empty = processes.empty() ? empty + 1 : 0;
    for (const Process& process : processes)
      ::kill(process.pid, SIGKILL);
    ::poll(nullptr, 0, kPauseMs);
  }
}

}  // namespace muster
