// How much room a worker's log file takes and has: what to cut out of its middle when it is over
// its limit or the disk is full, and how much to reserve behind its end, so that the worker, which
// writes to the file itself, never meets a full disk.
//
// Pure: sizes in, ranges out; log_space.h carries them out. The file is, from its start: its head,
// which stays for ever and ends with a marker line once something was removed; perhaps a hole,
// where the file system cannot close it; its tail, which the worker appends to; the reserve, behind
// the end of the file. docs/decisions/0007-log-rotation.md has the why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muster {

/// A part of a file, in bytes.
struct LogRange {
  std::int64_t offset = 0;
  std::int64_t length = 0;
  std::int64_t end() const { return offset + length; }
  bool operator==(const LogRange&) const = default;
};

/// The smallest limit of a log file that makes sense: a few blocks at each end.
inline constexpr std::int64_t kMinLogLimitBytes = 64 << 10;
/// Reserved behind the end of a log file: at first, and at most.
inline constexpr std::int64_t kMinReserveBytes = 256 << 10;
inline constexpr std::int64_t kMaxReserveBytes = 32 << 20;

/// The line that stands where something was removed. Always of one length.
std::string removal_marker(std::int64_t removed_bytes);

class LogRoom {
 public:
  struct Options {
    std::int64_t max_bytes = 0;  // Of the file; 0: no limit.
    std::int64_t block_bytes = 4096;
    std::int64_t reserved_to = 0;  // Up to where room was reserved before.
  };
  explicit LogRoom(Options options);

  /// What to cut because the file is over its limit: leaves its first and its last quarter of the
  /// limit at least. Nothing at or behind `read_to`: that has not been shown yet.
  std::optional<LogRange> cut_over_limit(std::int64_t size, std::int64_t read_to) const;
  /// What to cut because the disk is full: most of what is between head and tail.
  std::optional<LogRange> cut_for_space(std::int64_t size, std::int64_t read_to) const;
  /// The cut was made: the file is shorter by it, or it is a hole now. `offset` of the first cut is
  /// where the head ends.
  void collapsed(const LogRange& cut);
  void punched(const LogRange& cut);

  /// Of the file so far, the head's end that the marker took the place of included.
  std::int64_t removed_bytes() const { return removed_; }
  /// Where the marker goes: the last bytes of the head.
  LogRange marker_place() const;

  /// To be called first at each look at the file.
  void seen(std::int64_t size);
  /// What to reserve now, if anything: enough for ten times what came between the last two looks.
  std::optional<LogRange> to_reserve() const;
  void reserved(const LogRange& range);
  std::int64_t reserved_to() const { return reserved_to_; }

 private:
  std::int64_t aligned(std::int64_t bytes) const { return bytes / block_ * block_; }
  bool has_cut() const { return removed_ > 0; }
  void remember(const LogRange& cut);

  std::int64_t max_;
  std::int64_t block_;
  std::int64_t head_end_ = 0;  // From the first cut on.
  std::int64_t hole_end_ = 0;  // The same, if there is no hole.
  std::int64_t removed_ = 0;
  std::int64_t reserved_to_;
  std::int64_t reserve_ = kMinReserveBytes;
  std::int64_t last_size_ = 0;
};

}  // namespace muster
