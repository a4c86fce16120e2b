// Where the workers stand: written when one hangs (--hang-timeout), and when somebody asks
// (SIGUSR2).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/core/hang_detector.h"
#include "agent/core/worker_table.h"
#include "agent/io/repeated_look.h"
#include "agent/io/stack_collector.h"
#include "rendezvous/core/ids.h"
#include "rendezvous/core/time.h"

namespace muster {

class HangResponse : public WorkerObserver {
 public:
  struct Handlers {
    std::function<std::vector<StackCollector::Target>()> workers;  // Those that live.
    std::function<std::string()> program;
    /// This one hangs, and the stacks are written. `why`: for the failure report.
    std::function<void(LocalRank, const std::string& why)> on_hung;
  };
  /// `timeout`: 0 if workers may do nothing for as long as they like.
  HangResponse(boost::asio::io_context& loop, WorkerTable& workers,
               const std::vector<std::string>& environment, Duration timeout, Handlers handlers);

  void worker_started(const RunningWorker& worker) override;
  /// What a worker does not do any more is no hang.
  void attempt_ends() override;
  /// A worker has said that it gets on.
  void progressed(LocalRank rank);
  void ended_progress(LocalRank rank);
  /// A signal asks for stacks; it has no other effect.
  void asked(int signal);
  /// Somebody elsewhere asks where this one stands. `done` is called once, unless cancel() comes
  /// before; without a file, with why there is none.
  void asked_for(LocalRank rank, std::function<void(const StackCollector::Evidence&)> done);
  void cancel() { stacks_.cancel(); }
  bool has_written() const { return has_written_; }

 private:
  bool look();
  void on_idle(std::vector<IdleWorker> idle);
  void collect(std::string why, StackCollector::Done done);

  const WorkerTable& workers_;
  Handlers handlers_;
  StackCollector stacks_;
  std::optional<DetectorWatch<HangDetector>> watch_;  // Nothing: nobody watches for hangs.
  int attempt_ = 0;
  bool has_written_ = false;
};

}  // namespace muster
