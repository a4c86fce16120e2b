// Which part of a log file goes when the file is over its limit or the disk is full.
//
// Pure: sizes in, ranges out; log_file.h moves the bytes. The file is, from its start: its head,
// which stays and ends with a marker line once something was removed; its tail, which grows.
// docs/decisions/0011-log-files-through-a-pipe.md says why.
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

/// The line that stands where something was removed. Always of one length.
std::string removal_marker(std::int64_t removed_bytes);

class LogCut {
 public:
  /// `max_bytes`: of the file; 0: no limit.
  explicit LogCut(std::int64_t max_bytes);

  /// What to cut because the file is over its limit: leaves its first and its last quarter of the
  /// limit at least. Nothing at or behind `read_to`, which has not been shown yet.
  std::optional<LogRange> over_limit(std::int64_t size, std::int64_t read_to) const;
  /// What to cut because the disk is full: most of what is between head and tail.
  std::optional<LogRange> for_space(std::int64_t size, std::int64_t read_to) const;
  /// The range is gone, and what was behind it has moved up.
  void removed(const LogRange& range);
  /// The file was truncated by somebody else: there is no marker in it any more.
  void forget() { head_end_ = removed_ = 0; }

  /// All bytes removed so far, including the part of the head that the marker replaced.
  std::int64_t removed_bytes() const { return removed_; }
  /// Where the marker goes: the last bytes of the head.
  LogRange marker_place() const;

 private:
  std::int64_t max_;
  std::int64_t head_end_ = 0;  // Set by the first cut.
  std::int64_t removed_ = 0;
};

}  // namespace muster
