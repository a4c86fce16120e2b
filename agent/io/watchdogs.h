// What watches the workers because the environment asks for it: file timers, and the watch for
// workers that wait in the kernel for too long (agent/core/uninterruptible.h). Both cost nothing
// where nobody asks.

#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/core/uninterruptible.h"
#include "agent/core/worker_table.h"
#include "agent/io/file_timer.h"
#include "agent/io/repeated_look.h"
#include "agent/posix/process_scan.h"

namespace muster {

class Watchdogs : public WorkerObserver {
 public:
  struct Handlers {
    /// For the failure report: why this worker has been ended, or is about to be.
    std::function<void(LocalRank, const std::string& why)> on_reason;
    /// It is stuck in the kernel, which has been logged: to be ended as one that hangs.
    std::function<void(LocalRank)> on_stuck;
  };
  /// `fifo`: null without file timers; it outlives this object. `read_state`: of a process.
  Watchdogs(boost::asio::io_context& io, WorkerTable& workers,
            const std::vector<std::string>& environment, const TimerFifo* fifo, Handlers handlers,
            std::function<char(pid_t)> read_state = process_state);

  void worker_started(const RunningWorker& worker) override;
  /// None is called stuck any more. Their timers go on.
  void attempt_ends() override;

 private:
  bool look();
  void on_stuck(const StuckWorker& stuck);
  void on_expired(const FileTimer::Expired& timer);

  const WorkerTable& workers_;
  Handlers handlers_;
  std::function<char(pid_t)> read_state_;
  std::optional<FileTimer> timers_;
  std::optional<DetectorWatch<UninterruptibleDetector>> states_;  // Nothing: nobody asks for it.
};

}  // namespace muster
