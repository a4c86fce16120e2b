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
#include <vector>

#include "agent/logs/log_pump.h"
#include "agent/logs/log_record.h"
#include "agent/logs/log_streams.h"

namespace muster {

class LogLoop {
 public:
  using Message = std::function<void(LogLoop&)>;

  /// `mailbox`: the end of the pipe that Message pointers come out of; it owns them.
  static Result<std::unique_ptr<LogLoop>> open(const LogPump::Options& options, LogFd mailbox);

  /// Until stop(); true if everything was read and shown. On the log thread, as all below.
  bool run();

  void follow(FollowOptions options);
  void tap(const TapOptions& options, LogFd read_end);
  void keep_tail_of(LocalRank worker, std::string stderr_file);
  void keep(const std::string& file);
  void record(const std::string& file, LogFd read_end);
  std::string tail(LocalRank worker);
  void catch_up(Instant deadline, std::function<void()> done);
  void finish(Instant deadline, std::function<void(FinishReport)> done);
  void stop(Instant deadline);
  /// From any thread: no callback from now on.
  void abandon() { abandoned_ = true; }

 private:
  struct Finishing {
    Instant deadline;
    std::function<void(FinishReport)> done;
    bool reading = true;  // Then: flushing.
    FinishReport report;
  };
  struct CatchingUp {
    Instant deadline;
    std::function<void()> done;
  };
  struct Output : LogOutput {
    using LogOutput::LogOutput;
    std::uint32_t interest = 0;
    bool can_wait = true;  // False: epoll does not take it.
  };

  // Of one stream, before the next one's turn.
  static constexpr std::size_t kBytesPerTurn = 1 << 20;
  // Of files, where inotify is not to be had.
  static constexpr Duration kPollInterval = std::chrono::milliseconds(100);

  LogLoop(const LogPump::Options& options, LogFd mailbox, LogFd epoll);
  void wait();
  void dispatch(std::uint64_t id);
  Instant next_turn(Instant now) const;
  void read_mailbox();
  std::vector<std::unique_ptr<Message>> take_messages();
  void forget_messages();
  void read_inotify();
  void read_files(Instant now);
  void keep_files();
  void release_files();
  FollowedFile* follower_of(const LogSpace& space) const;
  void read_pipe(std::uint64_t id);
  void read_tap(std::uint64_t id);
  bool read_record(RecordedPipe& record);
  bool make_room(const std::string& file);
  bool look_at(LogSpace& space, bool is_full);
  std::int64_t read_to_end(FollowedFile& file);
  void expire(Instant now);
  void flush();
  void update_interests(Instant now);
  bool set_interest(int fd, std::uint64_t id, std::uint32_t& current, std::uint32_t wanted);
  void advance_catching_up(Instant now);
  bool is_behind() const;
  bool all_shown() const;
  void advance_finishing(Instant now);
  std::map<LocalRank, std::string> end_streams();
  bool nothing_to_read() const;
  Output& output_of(LogStream stream);
  static bool has_room(LogOutput& output);
  std::string_view time_text();

  LineLimits limits_;
  const LogSpaceOptions space_;
  LogFd mailbox_;
  LogFd epoll_;
  LogFd inotify_;
  std::uint32_t inotify_interest_ = 0;
  std::vector<std::unique_ptr<Output>> outputs_;  // Out, Err; one if both are one console.
  std::vector<std::unique_ptr<FollowedFile>> files_;
  std::vector<std::unique_ptr<LogSpace>> kept_;
  std::map<std::uint64_t, std::unique_ptr<RecordedPipe>> records_;
  std::map<std::uint64_t, std::unique_ptr<TappedPipe>> taps_;
  std::map<std::string, std::shared_ptr<LogFilterFile>> filtered_;
  std::map<LocalRank, std::string> stderr_files_;
  std::map<LocalRank, std::string> last_tails_;  // Of the attempt before.
  int next_stream_ = 0;
  std::uint64_t next_tap_;
  Instant files_resume_{};               // No file is read before: writes come together meanwhile.
  Instant polled_{};                     // When unwatched files were last looked at.
  std::vector<CatchingUp> catching_up_;  // A few: one for each failure that is announced.
  std::optional<Finishing> finishing_;
  bool stopped_ = false;
  bool all_done_ = true;
  std::atomic<bool> abandoned_ = false;
  std::vector<char> buffer_;
  std::string time_text_;
};

}  // namespace muster
