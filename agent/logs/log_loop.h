// What runs on the log thread; log_pump.h is its face.
#pragma once

#include <array>
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

  /// Until stop(); true if everything was read and shown. On the log thread, as all below.
  bool run();

  void follow(FollowOptions options);
  void add_pipe(OwnedFd read_end, const PipeOptions& options);
  void catch_up(Instant deadline);
  void end_attempt(std::function<void(const LogPump::Tails&)> done);
  void finish(Instant pipes_deadline, std::function<void(FinishReport)> done);
  void flush_all(std::function<void(ShownReport)> done);
  void hurry();
  void stop(Instant deadline);
  /// From any thread: no callback from now on.
  void abandon() { abandoned_ = true; }
  /// From any thread: for how long the thread has been busy with one turn; 0: it waits for events.
  Duration busy_for() const;

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
    bool can_wait = true;  // False: epoll does not take it.
  };

  // Of files, where inotify is not to be had.
  static constexpr Duration kPollInterval = std::chrono::milliseconds(100);

  LogLoop(const LogPump::Options& options, std::shared_ptr<LogMailbox> mailbox, OwnedFd epoll);
  void wait();
  void dispatch(std::uint64_t id);
  Instant next_turn(Instant now) const;
  void read_mailbox();
  void say(LogStream stream, std::string_view text);
  void show(LogStream stream, std::string_view text);
  void show_held();
  void read_inotify();
  void read_files(Instant now);
  void read_pipe(std::uint64_t id);
  void read_pipe(WorkerPipe& pipe);
  void expire(Instant now);
  bool is_rest_there(const FollowedFile& file) const;
  void flush_consoles();
  void flush();
  void update_interests(Instant now);
  bool set_interest(int fd, std::uint64_t id, std::uint32_t& current, std::uint32_t wanted);
  void advance_catching_up(Instant now);
  bool is_behind() const;
  bool all_shown() const;
  void advance_finishing(Instant now);
  void advance_flushing(Instant now);
  void say_what_is_waited_for();
  void say_what_was_lost();
  bool nothing_to_read() const;
  LogPump::Tails tails() const;
  LogPump::Tails end_streams();
  std::size_t ended_streams() const;
  void forget_ended_streams();
  void close_ended_streams();
  void forget_follower(const FollowedFile& file);
  void forget_file(WorkerPipe& pipe);
  Output& output_of(LogStream stream);

  LineLimits limits_;
  std::shared_ptr<LogMailbox> mailbox_;
  OwnedFd epoll_;
  OwnedFd inotify_;
  std::uint32_t inotify_interest_ = 0;
  std::vector<std::unique_ptr<Output>> outputs_;  // Out, Err; one if both are one console.
  TurnTime time_;
  std::vector<std::unique_ptr<FollowedFile>> files_;
  std::map<std::uint64_t, std::unique_ptr<WorkerPipe>> pipes_;
  std::map<std::string, std::shared_ptr<LogFilterFile>> filtered_;
  int next_stream_ = 0;
  std::uint64_t next_pipe_;
  Instant files_resume_{};             // No file is read before: writes come together meanwhile.
  Instant polled_{};                   // When unwatched files were last looked at.
  std::optional<Instant> held_until_;  // catch_up(): own lines wait for the workers' output.
  std::vector<std::pair<LogStream, std::string>> held_;
  std::size_t held_bytes_ = 0;
  std::size_t dropped_lines_ = 0;  // Of muster's own, which nobody has been told of.
  std::int64_t lost_log_bytes_ = 0;
  std::optional<Finishing> finishing_;
  std::optional<Flushing> flushing_;
  std::optional<Instant> ending_since_;  // Set by finish() and flush_all().
  bool has_said_why_ = false;            // They take long.
  bool hurried_ = false;
  bool ends_streams_ = false;            // Some are of an earlier attempt.
  std::function<void()> attempt_ended_;  // Waits for most of those.
  std::optional<Instant> stop_deadline_;
  bool stopped_ = false;
  bool all_done_ = true;
  std::atomic<bool> abandoned_ = false;
  std::atomic<std::int64_t> busy_since_ns_ = 0;
  std::vector<char> buffer_;
};

}  // namespace muster
