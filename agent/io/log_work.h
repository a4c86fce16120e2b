// The control loop's access to the log thread. Handles a thread that does not answer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "agent/io/periodic_check.h"
#include "agent/logs/log_pump.h"

namespace muster {

class OwnLines;

/// Owns the log thread. An operation that may wait for storage is a step: the thread does it, and
/// the loop goes on meanwhile. If the thread hangs when the job ends, it is abandoned, and a second
/// log thread prints the remaining lines.
class LogWork {
 public:
  /// How long the end of a job waits for storage that does not answer.
  static constexpr Duration kHungLimit = std::chrono::seconds(30);
  /// The same limit after a signal.
  static constexpr Duration kHungLimitAfterSignal = std::chrono::seconds(2);

  /// `folder`: of the logs, for messages; empty: a temporary one. `reader_limit`: when a signal has
  /// ended the job, a reader of the console that does not read is waited for so long, at least
  /// kHungLimitAfterSignal.
  LogWork(boost::asio::io_context& io, std::string folder, Duration reader_limit);

  /// Starts the thread, and routes muster's own log lines to it. Called once, before the agent
  /// starts other threads: it replaces the default logger's sink.
  boost::system::error_code start();
  /// Called only after start() succeeded.
  LogPump& pump() { return *pump_; }
  /// Prints whole lines of muster's own on stderr.
  void print(std::string lines) { pump_->print(LogStream::Err, std::move(lines)); }

  /// `begin` gives work to the log thread, which calls the second argument of `begin` afterwards.
  /// `done` is then called on the loop with true; or with false if the thread was abandoned. One
  /// step at a time.
  using Answer = std::function<void()>;
  void step(const std::function<void(LogPump&, Answer)>& begin, std::function<void(bool)> done);
  /// The same for a function that the log thread runs.
  void run(std::function<void()> job, std::function<void(bool)> done);

  /// The job ends: no worker is alive, and only the last output and the reports are left.
  void job_ends();
  /// A signal that ends the job has come. After job_ends() no console is waited for any more.
  void on_signal();

 private:
  void answered(std::uint64_t number);
  void finish_step(bool answered);
  bool check();
  bool is_hung() const { return pump_->blocked_for() >= kExplainAfter; }
  void report_hang();
  void abandon_pump();

  boost::asio::io_context& io_;
  std::string place_;
  std::shared_ptr<OwnLines> lines_;  // The default logger has it, too. Null before start().
  std::unique_ptr<LogPump> pump_;
  std::unique_ptr<LogPump> second_;  // Started when the first one hangs.
  PeriodicCheck periodic_check_;
  std::function<void(bool)> done_;  // Of the current step.
  std::uint64_t step_ = 0;
  const Duration reader_limit_;
  std::optional<Instant> ended_at_;  // When job_ends() was called.
  bool ending_ = false;
  bool signalled_ = false;
  bool hang_reported_ = false;
  bool is_dead_ = false;  // The thread hangs, and no second one could be started.
};

}  // namespace muster
