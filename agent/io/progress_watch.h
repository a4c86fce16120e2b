// How far the workers of an attempt have come: by the steps that they tell over the worker channel,
// or by --progress-file, which counts alone if it is given.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>

#include "agent/core/progress_mark.h"
#include "agent/io/log_work.h"
#include "agent/io/periodic_check.h"

namespace muster {

class ProgressWatch {
 public:
  using Handler = std::function<void(const Progressed&)>;
  /// `file`: the path of --progress-file; empty: none. `on_progress` is called on the loop.
  ProgressWatch(boost::asio::io_context& io, std::string file, LogWork& work, Handler on_progress);
  ProgressWatch(const ProgressWatch&) = delete;
  ProgressWatch& operator=(const ProgressWatch&) = delete;

  /// The workers of an attempt are about to start.
  void begin_attempt();
  /// A worker has told this step.
  void note_step(std::int64_t step);
  /// A worker has failed: what the file says now decides what the failure costs. Waits for storage
  /// that hangs for a short time at most.
  void worker_failed();
  bool has_failed() const { return failed_; }
  void stop() { check_.stop(); }

 private:
  struct File;
  bool check();
  void tell(const Progressed& progressed);

  boost::asio::io_context& io_;
  std::shared_ptr<File> file_;  // Null without a file. The log thread has it, too.
  LogWork& work_;
  Handler on_progress_;
  PeriodicCheck check_;
  std::optional<std::int64_t> highest_;  // The highest step of the attempt.
  bool failed_ = false;                  // A worker of the attempt has failed.
  bool is_reading_ = false;              // For check().
  /// The number of the attempt: what was read in an earlier one is not told.
  std::shared_ptr<std::uint64_t> attempt_ = std::make_shared<std::uint64_t>(0);
};

}  // namespace muster
