// How long a thread has been busy with one thing, for other threads: seconds of sleep in the kernel
// mean that storage does not answer.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/time.h"

namespace muster {

class BusyThread {
 public:
  // The thread itself calls these:
  /// To be called first.
  void begin();
  /// Another part of the work begins.
  void record_progress();
  /// It waits for events from now on.
  void rest() { busy_since_ns_ = 0; }

  /// Any thread may call this. The time since record_progress(), if the thread sleeps in the kernel
  /// now. 0 if it rests, runs, or waits for a processor.
  Duration blocked_for() const;

 private:
  std::atomic<int> thread_id_ = 0;
  std::atomic<std::int64_t> busy_since_ns_ = 0;  // 0: it rests.
};

}  // namespace muster
