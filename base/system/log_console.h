// The console to which the output of the workers and of muster goes. Writing to it never blocks.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/system/owned_fd.h"

namespace muster {

/// True if both descriptors lead to the same place: one terminal, one pipe, one open file. Then
/// bytes that are written alternately to both arrive in the order of the writes.
bool is_one_console(int fd, int other_fd);

/// A console that is written without blocking. The inherited descriptor is shared with the workers
/// and with the process that started muster. So this class does not set O_NONBLOCK on it, which
/// would change it for all of them. It opens pipes and terminals a second time through /proc. Where
/// that is not allowed, it writes to a pipe in portions that cannot block, and ends a write to a
/// terminal that does.
///
/// A console is open, failing, given up or closed. If a write returns ENOSPC, EDQUOT, EFBIG, EIO,
/// ENOMEM or ENOBUFS, the console is failing: it keeps kMaxKeptBytes and tries again. A console
/// that was given up keeps no byte that it cannot write at once. All other bytes are dropped and
/// counted. When a failing console accepts bytes again, it writes a line that says how many are
/// missing there.
class LogConsole {
 public:
  /// The most text that a failing console keeps.
  static constexpr std::size_t kMaxKeptBytes = 1 << 20;

  /// Takes a sentence about a console that failed or lost its reader.
  using Report = void (*)(const std::string& text);
  static void log_warning(const std::string& text);
  explicit LogConsole(int fd, Report report = log_warning);

  /// The bytes to write: append to this buffer, then call flush().
  std::string& buffer() { return buffer_; }
  /// Writes as many bytes as it can without blocking.
  void flush();
  /// From now on flush() drops the bytes that it cannot write at once.
  void give_up();
  /// From now on flush() drops what is beyond kMaxKeptBytes, as for a failing console.
  void limit_kept_bytes() { limited_ = true; }

  std::size_t unwritten_bytes() const { return closed_ ? 0 : buffer_.size() - written_; }
  /// The console's reader is gone (EPIPE and the like). Appended bytes are dropped.
  bool is_closed() const { return closed_; }
  /// Why the descriptor could not be copied, as errno; 0: it was, or it is not open.
  int open_error() const { return open_error_; }
  bool is_failing() const { return failing_; }
  /// True if the console may drop appended bytes. Such a console puts no backpressure on writers.
  bool is_lossy() const { return failing_ || given_up_ || limited_ || closed_; }
  /// All bytes that were dropped while the console still had a reader.
  std::size_t lost_bytes() const { return lost_; }
  bool is_given_up() const { return given_up_; }
  /// Counts bytes as lost that were never appended to buffer().
  void count_lost(std::size_t bytes) { lost_ += bytes; }
  /// The descriptor to poll for room while bytes are unwritten.
  int fd() const { return fd_.get(); }
  bool fd_is_open() const { return fd_.is_open(); }

 private:
  enum class Kind { File, Stream, CarefulStream, CarefulTerminal, Socket };
  void reopen(int fd);
  bool write_some(std::size_t end);
  void on_error(int error);
  bool reader_is_gone(int error) const;
  void drop_excess(std::size_t kept_bytes);
  void mark_gap(std::size_t at);

  int number_;  // The descriptor's number as the user knows it: 1 or 2.
  Report report_;
  OwnedFd fd_;
  Kind kind_ = Kind::File;
  std::string buffer_;
  std::size_t written_ = 0;
  std::optional<std::size_t> gap_;  // The place in buffer_ of dropped bytes, until a line says so.
  std::size_t gap_bytes_ = 0;
  std::size_t lost_ = 0;
  bool ends_line_ = true;  // The last byte that was written is a newline.
  bool failing_ = false;
  bool given_up_ = false;
  bool limited_ = false;
  bool closed_ = false;
  int open_error_ = 0;
};

}  // namespace muster
