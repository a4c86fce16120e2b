// A log file that the log thread writes. It stays within its limit, and its errors never block its
// worker.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/core/log_cut.h"
#include "base/system/log_console.h"

namespace muster {

struct LogFileOptions {
  std::int64_t max_bytes = 0;   // --log-max-bytes; 0: no limit.
  bool ends_when_full = false;  // --log-on-full=fail
  /// If ends_when_full: called on the log thread, once for each file that cannot be written because
  /// its disk is full. The text is for people.
  std::function<void(std::string)> on_full = {};
};

/// Whether the errno of a write means that the disk, the user's quota or the file is full.
bool is_disk_full(int error);

/// Describes the file system of a descriptor's file: "/data (ext4, 100.0 MB, 0.0 MB free)".
std::string describe_disk(int fd);

class FollowedFile;

/// Only the log thread may use this class, because storage can block the caller.
class LogFile {
 public:
  enum class Begin { Append, Truncate };

  /// Opens the file, and creates it if it is missing. If that fails, error() returns the errno, and
  /// each append() tries again.
  LogFile(std::string path, Begin begin, LogFileOptions options);

  const std::string& path() const { return path_; }
  int error() const { return error_; }
  /// False for a FIFO or a device, which a log-specs plug-in may have chosen.
  bool is_regular() const { return regular_; }
  int fd() const { return file_.get(); }
  /// An O_PATH descriptor of the file, which leads to it also under another name. Not open if the
  /// descriptor cannot be had. Unlike that of fd(), its close() never waits for storage.
  OwnedFd open_handle() const;
  /// What was removed from the file. Only the log thread may read it; it outlives this object.
  std::shared_ptr<const LogCut> cut() const { return cut_; }

  /// Appends at the file's end. Bytes that cannot be written are dropped and counted, and the next
  /// append() tries again. It then first writes a line that says how many bytes are missing there.
  /// On a full disk the file loses its middle first.
  void append(std::string_view bytes);
  /// A reader shows this file on a console. It gets all bytes that are written, and it reads the
  /// file to its end before bytes are removed for lack of space.
  void add_reader(FollowedFile& reader) { readers_.push_back(&reader); }
  void remove_reader(FollowedFile& reader) { std::erase(readers_, &reader); }
  /// False if bytes that could not be written wait for a reader's console, or would have to.
  bool has_room() const;

  /// Closes the file. No append() may follow. Returns how many bytes the file has lost because they
  /// could not be written or because the disk was full.
  std::int64_t finish();

 private:
  bool open(Begin begin);
  bool write_all(std::string_view& bytes);
  bool mark_gap();
  std::string full_text(int error) const;
  bool make_room(int error);
  void cut_over_limit();
  void notice_truncation();
  OwnedFd open_to_cut() const;
  bool remove(const LogRange& range);
  bool move_tail(const LogRange& range, std::int64_t size) const;
  std::int64_t size() const;
  std::int64_t min_reader_offset() const;
  void catch_up_readers();
  void warn_once(int error);

  std::string path_;
  LogFileOptions options_;
  OwnedFd file_;      // For append().
  OwnedFd cut_file_;  // For remove().
  bool regular_ = false;
  int error_ = 0;
  std::shared_ptr<LogCut> cut_;
  std::vector<FollowedFile*> readers_;
  std::int64_t size_ = 0;     // The file's size as far as this object knows.
  std::int64_t missing_ = 0;  // Bytes dropped since the last byte that was written.
  std::int64_t lost_ = 0;     // All bytes that were dropped, or removed because the disk was full.
  bool warned_ = false;
};

/// A file of the lines that pass a filter. Several streams may share it. It has a log file's
/// limits.
class LogFilterFile {
 public:
  LogFilterFile(std::string path, LogFileOptions options)
      : file_(std::move(path), LogFile::Begin::Append, std::move(options)) {}
  std::string& buffer() { return buffer_; }
  void flush() {
    if (!buffer_.empty()) file_.append(buffer_);
    buffer_.clear();
  }
  std::int64_t finish() {
    flush();
    return file_.finish();
  }

 private:
  LogFile file_;
  std::string buffer_;
};

}  // namespace muster
