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
  std::optional<LogRange> over_limit(std::int64_t size, std::int64_t read_to) const;
  /// The range to remove if the disk is full: most of the bytes between head and tail.
  std::optional<LogRange> for_space(std::int64_t size, std::int64_t read_to) const;
  /// Records that the range was removed, and that the bytes after it were moved up.
  void removed(const LogRange& range);
  /// Another process has truncated the file, so it has no marker any more.
  void reset() { head_end_ = removed_ = 0; }

  /// All bytes removed so far, including the part of the head that the marker replaced.
  std::int64_t removed_bytes() const { return removed_; }
  /// The range of the marker: the last bytes of the head.
  LogRange marker_place() const;

 private:
  std::int64_t max_;
  std::int64_t head_end_ = 0;  // Set by the first cut.
  std::int64_t removed_ = 0;
};

}  // namespace muster
