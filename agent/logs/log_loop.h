// The code that runs on the log thread. log_pump.h is its interface.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/logs/log_mailbox.h"
#include "agent/logs/log_pump.h"
#include "agent/logs/log_streams.h"

namespace muster {

class LogLoop {
 public:
  static Result<std::unique_ptr<LogLoop>> open(const LogPump::Options& options,
                                               std::shared_ptr<LogMailbox> mailbox);

  /// Runs until stop(). True if all output was read and shown. Like all methods below, it is called
  /// on the log thread. LogPump describes the methods of the same name.
  bool run();

  void follow(FollowOptions options);
  void add_pipe(OwnedFd read_end, const PipeOptions& options);
  void catch_up(Instant deadline);
  void end_attempt(std::function<void(const LogPump::Tails&)> done);
  void finish(Instant pipes_deadline, std::function<void(FinishReport)> done);
  void flush_all(std::function<void(ShownReport)> done);
  void hurry();
  void stop(Instant deadline);
  /// Any thread may call this. From now on the loop calls no callback.
  void abandon() { abandoned_ = true; }
  /// Any thread may call this. As LogPump::blocked_for().
  Duration blocked_for() const;

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
  struct Output : LogOutput {
    using LogOutput::LogOutput;
    std::uint32_t interest = 0;
    bool can_wait = true;  // False: epoll does not support this descriptor.
  };

  // How often files are polled if there is no inotify.
  static constexpr Duration kPollInterval = std::chrono::milliseconds(100);

  LogLoop(const LogPump::Options& options, std::shared_ptr<LogMailbox> mailbox, OwnedFd epoll);
  void wait();
  /// Another part of the turn begins: blocked_for() counts from now on.
  void record_progress();
  void dispatch(std::uint64_t id);
  Instant next_turn(Instant now) const;
  void read_mailbox();
  void print(OwnText own);
  void print_now(const OwnText& own);
  void print_held();
  void read_inotify();
  void read_streams(Instant now);
  /// False if there was nothing to read, or if the console had no room.
  bool read_file(FollowedFile& file, Instant now);
  bool read_pipe(std::uint64_t id);
  void read_pipe(WorkerPipe& pipe);
  bool a_console_is_full() const;
  void expire(Instant now);
  bool has_unread_rest(const FollowedFile& file) const;
  void flush_consoles();
  void flush();
  void update_interests(Instant now);
  bool set_interest(int fd, std::uint64_t id, std::uint32_t& current, std::uint32_t wanted);
  void advance_catching_up(Instant now);
  bool is_behind() const;
  bool all_shown() const;
  void advance_finishing(Instant now);
  void advance_flushing(Instant now);
  void log_wait();
  void print_losses();
  bool nothing_to_read() const;
  LogPump::Tails tails() const;
  LogPump::Tails end_streams();
  std::size_t count_ended_streams() const;
  void advance_attempt_end();
  void close_ended_streams();
  void close_follower(const FollowedFile& file);
  void close_file_of(WorkerPipe& pipe);
  Output& output_of(LogStream stream);

  std::shared_ptr<LogMailbox> mailbox_;
  OwnedFd epoll_;
  OwnedFd inotify_;
  std::uint32_t inotify_interest_ = 0;
  std::vector<std::unique_ptr<Output>> outputs_;  // Out and Err, or one if both are one console.
  TurnTime time_;
  std::vector<std::unique_ptr<FollowedFile>> files_;
  std::map<std::uint64_t, std::unique_ptr<WorkerPipe>> pipes_;
  std::map<std::string, std::shared_ptr<LogFilterFile>> filtered_;
  std::uint64_t next_pipe_;
  std::vector<epoll_event> events_;
  std::vector<std::uint64_t> readable_pipes_;  // Pipes with events in this turn.
  bool has_mail_ = false;                      // The mailbox has an event in this turn.
  std::uint64_t last_place_ = 0;               // The end of the queue of read_streams().
  Instant files_resume_{};             // No file is read earlier: several writes are read together.
  Instant polled_{};                   // When unwatched files were last polled.
  std::optional<Instant> held_until_;  // After catch_up(): muster's lines wait for the workers'.
  std::vector<OwnText> held_;
  std::size_t held_bytes_ = 0;
  std::size_t dropped_lines_ = 0;  // Muster's own lines that were dropped since the last notice.
  std::int64_t lost_log_bytes_ = 0;
  std::optional<Finishing> finishing_;
  std::optional<Flushing> flushing_;
  std::optional<Instant> ending_since_;      // When finish() or flush_all() began.
  bool wait_logged_ = false;                 // A line has said what they wait for.
  std::vector<std::size_t> printed_losses_;  // Bytes that print_losses() has counted, by output.
  bool hurried_ = false;
  bool has_ended_streams_ = false;       // Some streams belong to an earlier attempt.
  std::function<void()> attempt_ended_;  // Called when few enough of those wait for a console.
  std::optional<Instant> stop_deadline_;
  bool stopped_ = false;
  bool all_done_ = true;
  std::atomic<bool> abandoned_ = false;
  std::atomic<int> thread_id_ = 0;
  std::atomic<std::int64_t> busy_since_ns_ = 0;  // record_progress(). 0: it waits for events.
  std::vector<char> buffer_;
};

}  // namespace muster
