// What watches the workers because the environment asks for it: file timers and the state watch.
// Both cost nothing where nobody asks.

#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/io/file_timer.h"
#include "agent/io/state_watch.h"

namespace muster {

class Watchdogs {
 public:
  struct Handlers {
    /// For the failure report: why this worker has been ended, or is about to be.
    std::function<void(LocalRank, const std::string& why)> on_reason;
    /// It is stuck in the kernel, which has been logged: to be ended as one that hangs.
    std::function<void(LocalRank)> on_stuck;
  };
  /// `fifo`: null without file timers; it outlives this object.
  Watchdogs(boost::asio::io_context& io, const std::vector<std::string>& environment,
            const TimerFifo* fifo, Handlers handlers);

  /// No worker of an earlier attempt lives, none of the new one has been started.
  void attempt_begins();
  void worker_started(LocalRank rank, pid_t pid);
  void worker_ended(LocalRank rank);
  /// The workers are being stopped: none is called stuck any more. Their timers go on.
  void attempt_ends();

 private:
  void on_stuck(const StuckWorker& stuck);
  void on_expired(const FileTimer::Expired& timer);

  Handlers handlers_;
  std::optional<FileTimer> timers_;
  std::optional<StateWatch> states_;
  std::map<LocalRank, pid_t> workers_;
};

}  // namespace muster
