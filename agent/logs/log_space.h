// The room that one log file takes on its disk: kept under its limit, and ahead of its worker.
//
// The worker has the file open to append and knows nothing of this: the middle of the file is taken
// out under it (FALLOC_FL_COLLAPSE_RANGE, else a hole), and room is allocated behind the end
// (FALLOC_FL_KEEP_SIZE), so that when the disk is full it is muster that is told so, not the
// worker.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "agent/core/log_room.h"
#include "agent/logs/log_console.h"

namespace muster {

struct LogSpaceOptions {
  std::int64_t max_bytes = 0;  // --log-max-bytes; 0: no limit.
  bool drop_when_full = true;  // --log-on-full
  /// Called on the log thread, once for each file, when it does not fit any more and nothing may be
  /// dropped. What it is told is for people.
  std::function<void(std::string)> on_full = {};
};

/// What happened to a file that somebody may be reading.
struct LogRemoval {
  LogRange range;
  bool collapsed = false;  // What was behind it has moved up; else it is a hole.
};

/// Whether an errno of a write means that the disk, or the user's part of it, is full.
bool is_disk_full(int error);

/// Allocates the first room behind the end of a new log file. errno, 0 if it worked or if the file
/// system cannot do so. EFBIG: the process may not have a file of that size (`ulimit -f`).
int reserve_log_space(int fd);

/// "/data (ext4, 100.0 MB, 0.0 MB free)": the file system that a descriptor's file is on.
std::string describe_disk(int fd);

class LogSpace {
 public:
  /// The file is there and reserve_log_space() was called for it.
  LogSpace(std::string path, const LogSpaceOptions& options);

  static constexpr std::int64_t kAllRead = std::numeric_limits<std::int64_t>::max();
  /// Does what has to be done now; `read_to`: up to where its follower, if any, has read. What was
  /// removed may be behind that if the disk is full: before that `read_on` lets the follower read
  /// what it can, and says how far it has come.
  std::optional<LogRemoval> look(std::int64_t read_to,
                                 const std::function<std::int64_t()>& read_on = {});
  /// The disk is full: drops most of the middle. Nothing if there is nothing to drop.
  std::optional<LogRemoval> make_room(std::int64_t read_to);
  /// Nobody writes any more: gives the reserve back, unless somebody still has the file open.
  void release();

  const std::string& path() const { return path_; }
  /// Because the disk was full.
  std::int64_t dropped_bytes() const { return dropped_; }
  bool is_tight() const { return told_full_; }
  bool must_be_polled() const { return watch < 0 && fd_.is_open(); }

  int watch = -1;     // As of FollowedFile.
  bool dirty = true;  // It may have grown.

 private:
  std::optional<LogRemoval> remove(const LogRange& cut);
  std::int64_t fair_reserve() const;
  int reserve(LogRange range);

  std::string path_;
  const LogSpaceOptions& options_;
  LogFd fd_;
  LogRoom room_;
  bool collapses_ = true;  // Until it did not work.
  bool punches_ = true;
  bool reserves_ = true;
  bool told_full_ = false;
  std::int64_t size_ = 0;  // At the last look.
  std::int64_t dropped_ = 0;
};

}  // namespace muster
