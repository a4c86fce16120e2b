// The files and pipes that the log thread reads: which have bytes, whose turn it is, and which
// belong to an attempt that has ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/logs/busy_thread.h"
#include "agent/logs/interest_set.h"
#include "agent/logs/log_consoles.h"
#include "agent/logs/log_pump.h"
#include "agent/logs/log_streams.h"
#include "base/system/owned_fd.h"
#include "base/time.h"

namespace muster {

class StreamTable {
 public:
  /// In the interest set: the id of inotify, and of the first pipe. Each later pipe has the next
  /// id.
  static constexpr std::uint64_t kInotify = 1;
  static constexpr std::uint64_t kFirstPipe = 16;

  /// All of them must outlive the table.
  StreamTable(LogConsoles& consoles, InterestSet& set, BusyThread& thread);
  StreamTable(const StreamTable&) = delete;
  StreamTable& operator=(const StreamTable&) = delete;
  ~StreamTable() = default;

  void follow(FollowOptions options);
  void add_pipe(OwnedFd read_end, const PipeOptions& options);

  // A turn: begin_turn(), on_event() for each event, read(), expire(), flush().
  void begin_turn() { readable_pipes_.clear(); }
  void on_event(std::uint64_t id);
  /// Reads the streams that have bytes and whose console has room. `with_pauses`: several writes to
  /// a file may be read together, a little later.
  void read(Instant now, bool with_pauses);
  /// Ends lines whose rest has not come in time.
  void expire(Instant now);
  /// Writes the lines that passed filters to their files.
  void flush();
  void update_interests(Instant now);
  /// The most events that one turn can have.
  std::size_t events_max() const { return kFirstPipe + pipes_.size(); }
  /// When the next turn is due without an event: `next`, if that is earlier.
  Instant next_turn(Instant now, Instant next) const;

  /// Reads what is there. is_behind() until all bytes are shown that the workers have written.
  void catch_up();
  bool is_behind() const;

  /// Reads what is there; all streams belong to an earlier attempt from now on. Returns the last
  /// lines of the workers' stderr.
  LogPump::Tails end_attempt();
  /// The streams of earlier attempts that have bytes for a console without room.
  std::size_t count_waiting_ended() const;
  /// Closes streams of earlier attempts that were read to their ends.
  void close_ended() {
    if (has_ended_streams_) close_ended_streams();
  }

  /// All files may have bytes. No bytes more are waited for from the pipes of earlier attempts.
  void begin_finishing();
  /// From now on each pipe is done when the bytes that are already in it are read.
  void stop_waiting_for_pipes();
  /// Skips the rest of the files whose console was given up.
  void skip_given_up();
  bool nothing_to_read() const;
  /// Whether all pipes of the last attempt were read until no process held them.
  bool all_pipes_have_ended() const;
  /// Closes all files, and the pipes that have ended. Returns the last lines of the workers'
  /// stderr.
  LogPump::Tails end_all();

 private:
  void read_inotify();
  /// False if there was nothing to read, or if the console had no room.
  bool read_file(FollowedFile& file, Instant now);
  bool read_pipe(std::uint64_t id);
  void read_pipe(WorkerPipe& pipe);
  bool has_unread_rest(const FollowedFile& file) const;
  LogPump::Tails tails() const;
  void mark_over();
  void close_ended_streams();
  void close_follower(const FollowedFile& file);
  void close_file_of(WorkerPipe& pipe);

  LogConsoles& consoles_;
  InterestSet& set_;
  BusyThread& thread_;
  OwnedFd inotify_;
  std::uint32_t inotify_interest_ = 0;
  TurnTime time_;
  std::vector<std::unique_ptr<FollowedFile>> files_;
  std::map<std::uint64_t, std::unique_ptr<WorkerPipe>> pipes_;
  std::map<std::string, std::shared_ptr<LogFilterFile>> filtered_;
  std::uint64_t next_pipe_ = kFirstPipe;
  std::vector<std::uint64_t> readable_pipes_;  // Pipes with events in this turn.
  std::uint64_t last_place_ = 0;               // The end of the queue of read().
  Instant files_resume_{};          // No file is read earlier: several writes are read together.
  Instant polled_{};                // When unwatched files were last polled.
  bool has_ended_streams_ = false;  // Some streams belong to an earlier attempt.
  std::int64_t lost_bytes_ = 0;     // Of the log files that were closed.
  std::vector<char> buffer_;
};

}  // namespace muster
