#include "agent/logs/busy_thread.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>

#include "agent/core/stat_text.h"
#include "base/system/clock.h"

namespace muster {

void BusyThread::begin() {
  thread_id_ = static_cast<int>(::syscall(SYS_gettid));  // The packages need only glibc 2.17.
}

void BusyThread::record_progress() {
  busy_since_ns_ = std::chrono::nanoseconds(now().time_since_epoch()).count();
}

Duration BusyThread::blocked_for() const {
  const std::int64_t since = busy_since_ns_;
  if (since == 0) return Duration(0);
  std::string stat;
  std::getline(std::ifstream("/proc/self/task/" + std::to_string(thread_id_) + "/stat"), stat);
  // The work may have ended meanwhile: a thread that waits for events sleeps as well.
  if (parse_stat(stat).state == 'R' || busy_since_ns_ != since) return Duration(0);
  return now().time_since_epoch() - std::chrono::nanoseconds(since);
}

}  // namespace muster
