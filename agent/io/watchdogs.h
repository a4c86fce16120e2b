// The watchdogs that environment variables enable: file timers, and the watch for workers that wait
// in the kernel for too long (agent/core/uninterruptible.h). Neither costs anything if not enabled.
// Always enabled is the watch for workers that connect to an address that does not answer.

#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/core/uninterruptible.h"
#include "agent/core/worker_table.h"
#include "agent/io/connection_watch.h"
#include "agent/io/file_timer.h"
#include "agent/io/periodic_check.h"
#include "agent/posix/process_scan.h"

namespace muster {

class Watchdogs : public WorkerObserver {
 public:
  struct Handlers {
    /// Why muster has ended this worker, or will end it now: for the failure report.
    std::function<void(LocalRank, const std::string& why)> on_reason;
    /// This worker is stuck in the kernel, and that is logged. End it like a worker that hangs.
    std::function<void(LocalRank)> on_stuck;
  };
  /// `fifo` is null without file timers, and outlives this object. `read_state` returns the state
  /// of a process.
  Watchdogs(boost::asio::io_context& io, WorkerTable& workers,
            const std::vector<std::string>& environment, const TimerFifo* fifo, Handlers handlers,
            std::function<char(pid_t)> read_state = process_state);

  void worker_started(const RunningWorker& worker) override;
  void worker_ended(const RunningWorker& worker, const WorkerExit& exit) override;
  /// Ends the watch for stuck workers. File timers go on.
  void attempt_ends() override;
  /// Reads this pipe's timers from now on. Null: there are no file timers.
  void read_timers(const TimerFifo* fifo) {
    if (timers_ && fifo != nullptr) timers_->read_pipe(*fifo);
  }

 private:
  bool check();
  void on_stuck(const StuckWorker& stuck);
  void on_expired(const FileTimer::Expired& timer);

  const WorkerTable& workers_;
  Handlers handlers_;
  ConnectionWatch connections_;
  std::function<char(pid_t)> read_state_;
  std::optional<FileTimer> timers_;
  std::optional<DetectorWatch<UninterruptibleDetector>> states_;  // Nothing if not enabled.
  bool is_watching_ = false;  // From the first start of an attempt until its workers are stopped.
};

}  // namespace muster
