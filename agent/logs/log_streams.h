// What the log thread reads: files that workers write to, and pipes that they write into.
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
#include "agent/logs/log_space.h"
#include "rendezvous/core/ids.h"

namespace muster {

/// Kept of a tapped stream: more than last_lines() will show, so that its first line is whole.
inline constexpr std::size_t kTailRingBytes = 16 << 10;

/// A console, and whose line it ends with.
struct LogOutput {
  explicit LogOutput(int fd) : console(fd) {}
  LogConsole console;
  LineMerger merger;
};

/// A file that lines are appended to; several streams share one.
class LogFilterFile {
 public:
  explicit LogFilterFile(std::string path);
  const std::string& path() const { return path_; }
  std::string& buffer() { return buffer_; }
  void flush();

 private:
  std::string path_;
  LogFd fd_;
  std::string buffer_;
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
  /// Something was taken out of the file. What had not been read of it is named on the console.
  void removed(const LogRemoval& removal, std::string_view time);
  std::int64_t offset() const { return offset_; }
  /// No more will be read.
  void finish(std::string_view time);
  std::optional<Instant> next_deadline() const { return assembler_.next_deadline(); }

  bool needs_time() const { return options_.prefix.needs_time(); }
  const std::string& path() const { return options_.path; }
  LogOutput& output() { return output_; }
  bool must_be_polled() const { return watch < 0 && fd_.is_open(); }

  int watch = -1;     // Of inotify; -1: not watched, so looked at from time to time.
  bool dirty = true;  // There may be something to read.

 private:
  void take(const LinePiece& piece) override;
  void filter(const LinePiece& piece);

  Options options_;
  LogOutput& output_;
  LogFd fd_;
  std::int64_t offset_ = 0;
  LineAssembler assembler_;
  std::string_view time_;      // Of the call in progress.
  std::string filtered_line_;  // The line so far, while it comes in pieces.
};

/// A worker's stream that goes to the console as it is, and of which the end is kept.
class TappedPipe {
 public:
  TappedPipe(LogFd read_end, LogOutput* output) : fd_(std::move(read_end)), output_(output) {}

  enum class State { Open, Drained, Ended };
  /// Reads up to `limit_bytes`; Drained: nothing more for now.
  State read(std::size_t limit_bytes, std::vector<char>& buffer);
  int fd() const { return fd_.get(); }
  LogOutput* output() { return output_; }  // Null: only its end is kept.
  const TailRing& tail() const { return tail_; }

  std::optional<LocalRank> worker;  // Nothing: its attempt is over, something still holds the pipe.
  bool is_behind = false;           // Not all that was in it when catch_up() came is read.
  bool has_ended = false;           // Nobody holds its other end; its tail may still be wanted.
  std::uint32_t interest = 0;       // What epoll has been told.

 private:
  LogFd fd_;
  LogOutput* output_;
  TailRing tail_{kTailRingBytes};
};

/// The last lines of a file; empty if it cannot be read.
std::string last_lines_of_file(const std::string& path, TailLimits limits);

}  // namespace muster
