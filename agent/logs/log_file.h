// A log file that the log thread writes: kept within its limit, and never in its worker's way.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/log_cut.h"
#include "agent/logs/log_console.h"

namespace muster {

struct LogFileOptions {
  std::int64_t max_bytes = 0;   // --log-max-bytes; 0: no limit.
  bool ends_when_full = false;  // --log-on-full=fail
  /// Called on the log thread, once for each file that cannot be written because its disk is full,
  /// if ends_when_full. The text is for people.
  std::function<void(std::string)> on_full = {};
};

/// Whether an errno of a write means that the disk, the user's part of it, or the file is full.
bool is_disk_full(int error);

/// "/data (ext4, 100.0 MB, 0.0 MB free)": the file system that a descriptor's file is on.
std::string describe_disk(int fd);

class FollowedFile;

/// Only the log thread uses it, because storage may make its caller wait.
class LogFile {
 public:
  enum class Begin { Append, Truncate };

  /// Opens it, and makes it if it is missing. Afterwards error() says what was wrong; append()
  /// tries again to open it.
  LogFile(std::string path, Begin begin, LogFileOptions options);

  const std::string& path() const { return path_; }
  int error() const { return error_; }
  /// False for a FIFO or a device, which a log-specs plug-in may have chosen.
  bool is_regular() const { return regular_; }
  int fd() const { return file_.get(); }

  /// Appends at the file's end. Bytes that cannot be written are dropped and counted, and the next
  /// append() tries again: a line in the file then says how many bytes are missing there. On a full
  /// disk the middle of the file goes first.
  void append(std::string_view bytes);
  /// Those who show the file hear what is written, and read on before bytes go for want of space.
  void add_reader(FollowedFile& reader) { readers_.push_back(&reader); }
  void remove_reader(FollowedFile& reader) { std::erase(readers_, &reader); }
  /// False: what came last could not be written, and the console of a reader has no room for it.
  bool has_room() const;

  /// Nobody writes any more: closes it. Returns how many bytes it has lost, because they could not
  /// be written or because the disk was full.
  std::int64_t finish();

 private:
  bool open(Begin begin);
  bool write_all(std::string_view& bytes);
  bool say_what_is_missing();
  std::string full_text(int error) const;
  bool make_room(int error);
  void cut_over_limit();
  bool remove(const LogRange& range);
  bool move_tail(const LogRange& range, std::int64_t size) const;
  std::int64_t size() const;
  std::int64_t read_to() const;
  void read_on();
  void warn_once(int error);

  std::string path_;
  LogFileOptions options_;
  OwnedFd file_;  // To append.
  OwnedFd cut_file_;
  bool regular_ = false;
  int error_ = 0;
  LogCut cut_;
  std::vector<FollowedFile*> readers_;
  std::int64_t size_ = 0;     // As far as we know.
  std::int64_t missing_ = 0;  // Dropped since the last byte that was written.
  std::int64_t lost_ = 0;     // All that was dropped, and cut because the disk was full.
  bool warned_ = false;
};

/// Lines that pass a filter, of several streams.
class LogFilterFile {
 public:
  explicit LogFilterFile(std::string path) : file_(std::move(path), LogFile::Begin::Append, {}) {}
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
