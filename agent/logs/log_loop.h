// The code that runs on the log thread. log_pump.h is its interface.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "agent/logs/busy_thread.h"
#include "agent/logs/interest_set.h"
#include "agent/logs/log_consoles.h"
#include "agent/logs/log_mailbox.h"
#include "agent/logs/log_pump.h"
#include "agent/logs/muster_lines.h"
#include "agent/logs/stream_table.h"

namespace muster {

class LogLoop {
 public:
  static Result<std::unique_ptr<LogLoop>> open(const LogPump::Options& options,
                                               std::shared_ptr<LogMailbox> mailbox);

  /// Runs until stop(). True if all output was read and shown. Like all methods below, it is called
  /// on the log thread. LogPump describes the methods of the same name.
  bool run();

  void follow(FollowOptions options) { streams_.follow(std::move(options)); }
  void add_pipe(OwnedFd read_end, const PipeOptions& options) {
    streams_.add_pipe(std::move(read_end), options);
  }
  void catch_up(Instant deadline);
  void end_attempt(std::function<void(const LogPump::Tails&)> done);
  void finish(Instant pipes_deadline, std::function<void(FinishReport)> done);
  void flush_all(std::function<void(ShownReport)> done);
  void hurry();
  void stop(Instant deadline);
  /// Any thread may call this. From now on the loop calls no callback.
  void abandon() { abandoned_ = true; }
  /// Any thread may call this. As LogPump::blocked_for().
  Duration blocked_for() const { return thread_.blocked_for(); }

 private:
  struct Finishing {
    Instant pipes_deadline;
    std::function<void(FinishReport)> done;
    bool pipes_are_late = false;
  };
  struct Flushing {
    std::function<void(ShownReport)> done;
    Instant begun;
  };

  LogLoop(const LogPump::Options& options, std::shared_ptr<LogMailbox> mailbox, InterestSet set);
  void wait();
  Instant next_turn(Instant now) const;
  void read_mailbox();
  void flush();
  void advance_attempt_end();
  void advance_catching_up(Instant now);
  void advance_finishing(Instant now);
  void advance_flushing(Instant now);
  void log_wait() const;

  std::shared_ptr<LogMailbox> mailbox_;
  InterestSet set_;
  BusyThread thread_;
  LogConsoles consoles_;
  MusterLines muster_lines_;
  StreamTable streams_;
  bool has_mail_ = false;                // The mailbox has an event in this turn.
  std::function<void()> attempt_ended_;  // Called when few enough old streams wait for a console.
  std::optional<Finishing> finishing_;
  std::optional<Flushing> flushing_;
  std::optional<Instant> ending_since_;  // When finish() or flush_all() began.
  bool wait_logged_ = false;             // A line has said what they wait for.
  bool hurried_ = false;
  std::optional<Instant> stop_deadline_;
  bool stopped_ = false;
  bool all_done_ = true;
  std::atomic<bool> abandoned_ = false;
};

}  // namespace muster
