// The streams that the log thread reads: log files, and the pipes that workers write into.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/line_assembler.h"
#include "agent/core/log_plan.h"
#include "agent/core/tail_ring.h"
#include "agent/logs/log_consoles.h"
#include "agent/logs/log_file.h"
#include "agent/logs/log_pump.h"
#include "base/ids.h"

namespace muster {

/// The last bytes of a worker's stderr that are kept. These are more than TailRing::lines() shows,
/// so that the first line shown is whole, and the cause is among them before dozens of frames.
inline constexpr std::size_t kTailRingBytes = 16 << 10;

/// The most bytes that are read from one stream before the next stream has its turn.
inline constexpr std::size_t kBytesPerTurn = 256 << 10;
/// The time of day for prefixes. It is read once in each turn of the log thread.
class TurnTime {
 public:
  void begin_turn() { text_.clear(); }
  std::string_view text();

 private:
  std::string text_;
};

/// Reads a worker's log file and shows it on a console.
class FollowedFile final : private LineSink {
 public:
  /// `filtered` is options.filtered_file; null: no filters.
  FollowedFile(FollowOptions options, std::shared_ptr<LogFilterFile> filtered, LogOutput& output,
               TurnTime& time);
  ~FollowedFile();
  FollowedFile(const FollowedFile&) = delete;
  FollowedFile& operator=(const FollowedFile&) = delete;

  /// Reads for one turn. True if there may be more to read.
  bool read(Instant now, std::vector<char>& buffer);
  void on_time(Instant now) { assembler_.on_time(now, *this); }
  void expect_more(Instant now) { assembler_.expect_more(now); }
  /// True if the file has bytes that have not been read.
  bool is_behind() const;
  std::int64_t offset() const { return offset_; }
  // The LogFile calls these, if the log thread writes the file:
  /// Reads to the file's end, or as far as the console has room: the bytes may be removed next.
  void read_to_end();
  /// The file has lost this range, and the bytes after it have moved up. Shows a line that says how
  /// many of the lost bytes had not been shown.
  void removed(const LogRange& range);
  /// The file now has these bytes at offset `at`.
  void written(std::string_view bytes, std::int64_t at);
  /// Shows bytes that could not be written to the file at offset `at`, after the bytes before them.
  /// If those wait for room on the console, these wait as well, in memory.
  void unwritten(std::string_view bytes, std::int64_t at);
  /// True while unwritten() bytes wait: the log thread then reads no more bytes for the file.
  bool has_unwritten() const;
  /// Another process has cut the file from the size `before` to `now`. Shows a line that says how
  /// many of the lost bytes had not been shown.
  void truncated(std::int64_t before, std::int64_t now);
  /// Does not show these bytes of the file. They say that unwritten() bytes are missing there.
  void skip(const LogRange& range);
  /// Its console was given up: skips the rest of the file, and counts it as lost there.
  void skip_to_end();
  /// Ends the last line. No read() may follow.
  void finish();
  std::optional<Instant> next_deadline() const { return assembler_.next_deadline(); }

  const std::string& path() const { return options_.file; }
  LogOutput& output() { return output_; }
  /// The same file, if the log thread writes it; else null.
  const LogFile* written_here() const { return options_.written_here.get(); }
  bool must_be_polled() const { return watch < 0 && !options_.written_here && fd_.is_open(); }

  int watch = -1;           // The inotify watch; -1: there is none, and the file is polled.
  bool dirty = true;        // The file may have bytes to read.
  bool is_over = false;     // The attempt has ended: the file is closed when all of it is read.
  std::uint64_t place = 0;  // In the queue of StreamTable::read().

 private:
  /// Bytes that are not in the file, or that are lost. Their place is before skipped.offset.
  struct Unwritten {
    std::string bytes;
    LogRange skipped;            // This part of the file is not shown.
    std::int64_t truncated = 0;  // The count of the lost bytes, which a line shows.
  };

  void append(const LinePiece& piece) override;
  void show_unwritten(Instant now);
  void show_lost(std::int64_t bytes, std::string_view why);
  void filter(const LinePiece& piece, std::string_view time);

  FollowOptions options_;
  std::shared_ptr<LogFilterFile> filtered_;
  LogOutput& output_;
  const int stream_;  // The number of this stream in the output's merger.
  TurnTime& time_;
  OwnedFd fd_;
  std::int64_t offset_ = 0;
  std::deque<Unwritten> unwritten_;  // In the order of the file.
  LineAssembler assembler_;
  std::string filtered_line_;  // The first pieces of a line that comes in several pieces.
};

/// A pipe or a terminal that a worker writes to. Its bytes go to a console unchanged, or to a log
/// file, or nowhere. Its last bytes may be kept.
class WorkerPipe {
 public:
  /// `output` is options.console; null: the bytes go to no console.
  WorkerPipe(OwnedFd read_end, PipeOptions options, LogOutput* output);

  enum class State { Open, Drained, Ended };
  /// Reads for one turn. Drained: the pipe is empty for now. Ended: no process holds the other end.
  State read(std::vector<char>& buffer);
  /// True if the pipe has bytes to read.
  bool has_bytes() const;
  /// From now on the pipe is done when the bytes that are already in it are read.
  void stop_waiting();
  /// From now on the pipe is behind until the bytes that are already in it are read.
  void catch_up();
  bool is_behind() const { return behind_bytes_ > 0 && !has_ended; }
  /// True if no more bytes can come, or if the loop need not wait for more.
  bool is_done() const { return has_ended || remaining_bytes_ == 0U; }

  int fd() const { return fd_.get(); }
  /// False if the pipe must not be read now: its bytes would have to wait for a console.
  bool has_room() const {
    return (output_ == nullptr || output_->has_room()) &&
           (!options_.file || options_.file->has_room());
  }
  LogOutput* output() const { return output_; }          // Null: the bytes are not shown.
  LogFile* file() const { return options_.file.get(); }  // Null: the bytes go to no file.
  /// The worker whose stderr this is, and its last bytes; null: they are not kept.
  std::optional<LocalRank> tail_of() const { return options_.tail_of; }
  const TailRing* tail() const { return tail_ ? &*tail_ : nullptr; }
  void drop_tail() { tail_.reset(); }

  bool is_over = false;        // The attempt has ended; a process may still hold the other end.
  bool has_ended = false;      // No process holds the other end.
  std::uint32_t interest = 0;  // The events that epoll watches.
  std::uint64_t place = 0;     // In the queue of StreamTable::read().

 private:
  OwnedFd fd_;
  PipeOptions options_;
  LogOutput* output_;
  std::optional<TailRing> tail_;
  std::optional<std::size_t> remaining_bytes_;  // Bytes to read before is_done(); stop_waiting().
  std::size_t behind_bytes_ = 0;                // Bytes to read while is_behind(); catch_up().
};

}  // namespace muster
