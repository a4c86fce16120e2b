// Decides which part of a log file is removed when the file is over its limit or the disk is full.
//
// Pure: sizes in, ranges out; log_file.h moves the bytes. The file begins with its head, which
// stays, and which ends with a marker line once something was removed. The tail follows, and grows.
// docs/decisions/0011-log-files-through-a-pipe.md gives the reasons.
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

/// The smallest limit of a log file.
inline constexpr std::int64_t kMinLogLimitBytes = 64 << 10;
/// The smallest part that is cut out of a file because the disk is full.
inline constexpr std::int64_t kMinCutBytes = 4096;

/// The line at the place where bytes were removed. Its length is always the same.
std::string removal_marker(std::int64_t removed_bytes);

class LogCut {
 public:
  /// `max_bytes`: the limit of the file; 0: no limit.
  explicit LogCut(std::int64_t max_bytes);

  /// The range to remove if the file is over its limit. The first and the last quarter of the limit
  /// are kept at least. Bytes from `read_to` on are kept too, because they have not been shown yet.
  /// Nothing is removed until that is worth moving the bytes behind it, so the file may be larger
  /// than the limit, by up to 5/4 of the bytes that have not been shown.
  std::optional<LogRange> over_limit(std::int64_t size, std::int64_t read_to) const;
  /// The range to remove if the disk is full: most of the bytes between head and tail, up to
  /// `read_to`. Empty if that is not worth moving the bytes behind it.
  std::optional<LogRange> for_space(std::int64_t size, std::int64_t read_to) const;
  /// Records that the range was removed, and that the bytes after it were moved up.
  void removed(const LogRange& range);
  /// Another process has truncated the file, so it has no marker any more.
  void reset() { head_end_ = removed_ = 0; }

  /// All bytes removed so far, including the part of the head that the marker replaced.
  std::int64_t removed_bytes() const { return removed_; }
  /// The range of the marker: the last bytes of the head.
  LogRange marker_place() const;

  // A reader that comes back later has a position, which counts the removed bytes, too: a cut does
  // not change the position of a byte that is left.
  /// The position of the byte at `offset` in the file. The end of the file has a position, too.
  std::int64_t position_of(std::int64_t offset) const;
  /// The part of a file of `size` bytes to read for a reader at `position`: it has no gap, and ends
  /// at the marker or at the file's end. If the byte at `position` was removed, it begins with the
  /// marker. If there is no such byte yet, it is empty.
  LogRange readable(std::int64_t position, std::int64_t size) const;

 private:
  // How much farther up the bytes after the marker would be without the cuts.
  std::int64_t shift() const { return removed_ == 0 ? 0 : removed_ - marker_place().length; }

  std::int64_t max_;
  std::int64_t head_end_ = 0;  // Set by the first cut.
  std::int64_t removed_ = 0;
};

}  // namespace muster
