// What the log thread reads: log files, and the pipes that workers write into.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/line_assembler.h"
#include "agent/core/line_merger.h"
#include "agent/core/log_plan.h"
#include "agent/core/tail_ring.h"
#include "agent/logs/log_console.h"
#include "agent/logs/log_file.h"
#include "rendezvous/core/ids.h"

namespace muster {

/// Kept of a worker's stderr: more than last_lines() will show, so that its first line is whole.
inline constexpr std::size_t kTailRingBytes = 16 << 10;

/// Of one stream, before the next one's turn.
inline constexpr std::size_t kBytesPerTurn = 256 << 10;
/// Of a console, before its streams wait.
inline constexpr std::size_t kMaxUnwrittenBytes = 1 << 20;

/// A console, and the stream whose line it ends with.
struct LogOutput {
  explicit LogOutput(int fd) : console(fd) {}
  /// A lossy console holds nobody up.
  bool has_room() const {
    return console.is_lossy() || console.unwritten_bytes() <= kMaxUnwrittenBytes;
  }
  LogConsole console;
  LineMerger merger;
};

/// The time of day for prefixes: read once in a turn of the log thread.
class TurnTime {
 public:
  void begin_turn() { text_.clear(); }
  std::string_view text();

 private:
  std::string text_;
};

/// A worker's log file on its way to the console.
class FollowedFile final : private LineSink {
 public:
  struct Options {
    int id = 0;  // Not the same for two streams of one console.
    std::string path;
    LinePrefix prefix;
    std::vector<std::string> filters;
    std::shared_ptr<LogFilterFile> filtered;  // Null: no filters.
    std::shared_ptr<LogFile> written_here;    // The same file, if the log thread writes it.
    LineLimits limits;
  };
  FollowedFile(Options options, LogOutput& output, TurnTime& time);
  ~FollowedFile();
  FollowedFile(const FollowedFile&) = delete;
  FollowedFile& operator=(const FollowedFile&) = delete;

  /// Reads for one turn. True if there may be more.
  bool read(Instant now, std::vector<char>& buffer);
  void on_time(Instant now) { assembler_.on_time(now, *this); }
  void expect_more(Instant now) { assembler_.expect_more(now); }
  /// The file has more than was read.
  bool is_behind() const;
  std::int64_t offset() const { return offset_; }
  // From the LogFile, if the log thread writes it:
  /// Reads all, or as far as the console takes it: what follows may be dropped unseen.
  void read_to_end();
  /// A part of the file is gone, and what was behind it has moved up. A line on the console says
  /// how much of it had not been shown.
  void removed(const LogRange& range);
  /// These bytes stand in the file now, from `at` on.
  void written(std::string_view bytes, std::int64_t at);
  /// Shows bytes that could not be written to the file, and are not in it.
  void unwritten(std::string_view bytes);
  /// Does not show the file's next bytes.
  void skip(std::int64_t bytes) { offset_ += bytes; }
  /// Its console was given up: the rest is not read, and counted as lost there.
  void skip_to_end();
  /// No more will be read.
  void finish() { assembler_.finish(*this); }
  std::optional<Instant> next_deadline() const { return assembler_.next_deadline(); }

  const std::string& path() const { return options_.path; }
  LogOutput& output() { return output_; }
  const LogFile* written_here() const { return options_.written_here.get(); }  // Null: it is not.
  bool must_be_polled() const { return watch < 0 && !options_.written_here && fd_.is_open(); }

  int watch = -1;        // Of inotify; -1: not watched, so looked at from time to time.
  bool dirty = true;     // There may be something to read.
  bool is_over = false;  // Its attempt has ended: closed as soon as all of it is read.

 private:
  void take(const LinePiece& piece) override;
  void filter(const LinePiece& piece, std::string_view time);

  Options options_;
  LogOutput& output_;
  TurnTime& time_;
  OwnedFd fd_;
  std::int64_t offset_ = 0;
  LineAssembler assembler_;
  std::string filtered_line_;  // The line so far, while it comes in pieces.
};

/// A pipe that a worker writes to. Its bytes go to the console as they are, or are appended to a
/// log file, or neither; its end may be kept.
class WorkerPipe {
 public:
  struct Options {
    std::optional<LocalRank> tail_of;  // The end is kept: it is this worker's stderr.
    LogOutput* output = nullptr;
    std::shared_ptr<LogFile> file = nullptr;
  };
  WorkerPipe(OwnedFd read_end, Options options);

  enum class State { Open, Drained, Ended };
  /// Reads for one turn; Drained: nothing more for now; Ended: nobody holds the other end.
  State read(std::vector<char>& buffer);
  /// There is something to read.
  bool has_bytes() const;
  /// From now on only the bytes that are in the pipe already are waited for.
  void stop_waiting();
  /// Until the bytes that are in the pipe now are read, the pipe is behind.
  void catch_up();
  bool is_behind() const { return behind_ > 0 && !has_ended; }
  /// Nothing more is to come, or to be waited for.
  bool is_done() const { return has_ended || owed_ == 0U; }

  int fd() const { return fd_.get(); }
  /// False: what it brings has to wait for a console.
  bool has_room() const {
    return (options_.output == nullptr || options_.output->has_room()) &&
           (!options_.file || options_.file->has_room());
  }
  LogOutput* output() const { return options_.output; }  // Null: not shown.
  LogFile* file() const { return options_.file.get(); }  // Null: none.
  /// The worker whose stderr it is, and its end; null: not kept.
  std::optional<LocalRank> tail_of() const { return options_.tail_of; }
  const TailRing* tail() const { return tail_ ? &*tail_ : nullptr; }
  void forget_tail() { tail_.reset(); }

  bool is_over = false;        // Its attempt has ended; something may still hold the other end.
  bool has_ended = false;      // Nobody holds the other end.
  std::uint32_t interest = 0;  // What epoll has been told.

 private:
  OwnedFd fd_;
  Options options_;
  std::optional<TailRing> tail_;
  std::optional<std::size_t> owed_;  // Bytes still to be read after stop_waiting().
  std::size_t behind_ = 0;           // The same after catch_up().
};

}  // namespace muster
