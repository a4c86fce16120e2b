// Writes the workers' stacks: when a worker hangs (--hang-timeout), and when SIGUSR2 or musterctl
// asks for them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/core/hang_detector.h"
#include "agent/core/worker_table.h"
#include "agent/io/periodic_check.h"
#include "agent/io/stack_collector.h"
#include "base/ids.h"
#include "base/time.h"

namespace muster {

class HangResponse : public WorkerObserver {
 public:
  struct Handlers {
    std::function<std::vector<StackCollector::Target>()> workers;  // The running ones.
    std::function<std::string()> program;
    std::function<bool()> console_is_full;  // One to which workers write.
    /// This worker hangs, and the stacks are written. `why` is for the failure report.
    std::function<void(LocalRank, const std::string& why)> on_hung;
  };
  /// `timeout`: 0 if workers are not watched for hangs.
  HangResponse(boost::asio::io_context& loop, WorkerTable& workers,
               const std::vector<std::string>& environment, Duration timeout, Handlers handlers);

  void attempt_begins() override;
  void worker_started(const RunningWorker& worker) override;
  void worker_ended(const RunningWorker& worker, const WorkerExit& exit) override;
  /// Workers that are being stopped are not watched for hangs.
  void attempt_ends() override;
  /// A worker has reported progress.
  void progressed(LocalRank rank);
  /// A worker will report no more progress.
  void ended_progress(LocalRank rank);
  /// A worker has answered a notice, and waits until it is stopped.
  void saved(LocalRank rank);
  /// Writes the stacks of all workers, because `signal` asks for them.
  void write_stacks_on_signal(int signal);
  /// Writes the stacks of one worker, because musterctl asks for them. `done` is called once,
  /// unless cancel() comes before. If there is no file, `problem` says why.
  void request_stacks(LocalRank rank, std::function<void(const StackCollector::Evidence&)> done);
  void cancel() { stacks_.cancel(); }
  bool has_written_stacks() const { return has_written_; }

 private:
  bool check();
  void on_idle(std::vector<IdleWorker> idle);
  void end_hung_worker(const std::vector<IdleWorker>& idle,
                       const std::vector<StackCollector::Evidence>& evidence);
  void collect(std::string why, StackCollector::Done done);

  const WorkerTable& workers_;
  Handlers handlers_;
  StackCollector stacks_;
  std::optional<DetectorWatch<HangDetector>> watch_;  // Nothing if the timeout is 0.
  bool is_watching_ = false;  // From the beginning of the attempt until its workers are stopped.
  std::optional<LocalRank> hung_;  // This worker is being ended.
  int attempt_ = 0;
  bool has_written_ = false;
};

}  // namespace muster
