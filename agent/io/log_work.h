// What the control loop wants of the log thread, and what it does if that thread does not answer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "agent/io/own_lines.h"
#include "agent/io/repeated_look.h"
#include "agent/logs/log_pump.h"

namespace muster {

/// Owns the log thread. Whatever storage may hold up is a step: the thread does it, and the loop
/// goes on meanwhile. If the thread hangs when the job ends, it is left behind, and a second log
/// thread shows what is still to be said.
class LogWork {
 public:
  /// How long the end of a job waits for storage that does not answer, without and after a signal.
  static constexpr Duration kHungLimit = std::chrono::seconds(30);
  static constexpr Duration kHungLimitAfterSignal = std::chrono::seconds(2);

  /// `place`: of the logs, for people.
  LogWork(boost::asio::io_context& io, std::string place);

  /// Starts the thread, and sends muster's own lines to it.
  boost::system::error_code start();
  /// Called only after start() succeeded.
  LogPump& pump() { return *pump_; }
  /// Shows whole lines of muster's own on stderr.
  void say(std::string lines) { pump_->say(LogStream::Err, std::move(lines)); }

  /// `begin` makes the log thread do something and call its second argument afterwards. `done` is
  /// called on the loop: with true then, or with false if the thread was left behind. One step at a
  /// time.
  using Answer = std::function<void()>;
  void step(const std::function<void(LogPump&, Answer)>& begin, std::function<void(bool)> done);
  /// The same for a function that the log thread runs.
  void run(std::function<void()> job, std::function<void(bool)> done);

  /// The job ends: no worker lives, and only its last output and its reports are left.
  void job_ends();
  /// A signal that ends the job. When only output is left, no console is waited for any more.
  void on_signal();

 private:
  void answered(std::uint64_t number);
  void finish_step(bool answered);
  bool look();
  bool is_hung() const { return pump_->busy_for() >= kSayAfter; }
  void say_that_it_hangs();
  void leave_behind();

  boost::asio::io_context& io_;
  std::string place_;
  OwnLines lines_;
  std::unique_ptr<LogPump> pump_;
  std::unique_ptr<LogPump> second_;  // Started when the first one hangs.
  RepeatedLook look_;
  std::function<void(bool)> done_;  // Of the step that is under way.
  std::uint64_t step_ = 0;
  bool ending_ = false;
  bool signalled_ = false;
  bool has_said_ = false;
  bool is_dead_ = false;  // The thread hangs, and no second one could be started.
};

}  // namespace muster
