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

/// A console, and the stream whose line it ends with.
struct LogOutput {
  explicit LogOutput(int fd) : console(fd) {}
  LogConsole console;
  LineMerger merger;
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
    LineLimits limits;
  };
  FollowedFile(Options options, LogOutput& output);

  /// Reads up to `limit_bytes` more. True if it stopped there, so that there may be more.
  bool read(std::size_t limit_bytes, Instant now, std::string_view time, std::vector<char>& buffer);
  void on_time(Instant now, std::string_view time);
  /// A part of the file is gone, and what was behind it has moved up. A line on the console says
  /// how much of it had not been shown.
  void removed(const LogRange& range, std::string_view time);
  std::int64_t offset() const { return offset_; }
  /// Shows bytes that could not be written to the file, and are not in it.
  void show(std::string_view bytes, Instant now, std::string_view time);
  /// Does not show the file's next bytes.
  void skip(std::int64_t bytes) { offset_ += bytes; }
  /// Its console was given up: the rest is not read, and counted as lost there.
  void skip_to_end();
  /// No more will be read.
  void finish(std::string_view time);
  std::optional<Instant> next_deadline() const { return assembler_.next_deadline(); }

  bool needs_time() const { return options_.prefix.needs_time(); }
  const std::string& path() const { return options_.path; }
  LogOutput& output() { return output_; }
  bool must_be_polled() const { return watch < 0 && !is_fed && fd_.is_open(); }

  int watch = -1;        // Of inotify; -1: not watched, so looked at from time to time.
  bool is_fed = false;   // The log thread writes the file itself, and says when it has.
  bool dirty = true;     // There may be something to read.
  bool is_over = false;  // Its attempt has ended: closed as soon as all of it is read.

 private:
  void take(const LinePiece& piece) override;
  void filter(const LinePiece& piece);

  Options options_;
  LogOutput& output_;
  OwnedFd fd_;
  std::int64_t offset_ = 0;
  LineAssembler assembler_;
  std::string_view time_;      // Of the call in progress.
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
  /// Reads up to `limit_bytes`; Drained: nothing more for now; Ended: nobody holds the other end.
  State read(std::size_t limit_bytes, std::vector<char>& buffer);
  /// From now on only the bytes that are in the pipe already are waited for.
  void stop_waiting();
  /// Until the bytes that are in the pipe now are read, the pipe is behind.
  void catch_up();
  bool is_behind() const { return behind_ > 0 && !has_ended; }
  /// Nothing more is to come, or to be waited for.
  bool is_done() const { return has_ended || owed_ == 0U; }

  int fd() const { return fd_.get(); }
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
