// The console that the output of the workers and of muster goes to: written without ever waiting
// for it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "rendezvous/net/owned_fd.h"

namespace muster {

/// True if both descriptors lead to the same place: one terminal, one pipe, one open file. Then
/// what is written to one after the other also arrives so.
bool is_one_console(int fd, int other_fd);

/// A console, written to without waiting. The inherited descriptor is shared with the workers and
/// with the process that started muster, so its flags are left alone: O_NONBLOCK on it would hit
/// them all. Pipes and terminals are opened once more through /proc; where that is not allowed,
/// they are written to in portions that cannot block.
///
/// A console is open, failing, given up or closed. A failing one answers ENOSPC, EDQUOT, EFBIG or
/// EIO, and is tried again. A failing one keeps kMaxKeptBytes, and one that was given up keeps
/// nothing that it does not take at once: all other bytes are dropped and counted. When the failing
/// console takes bytes again, a line says how many are missing there.
class LogConsole {
 public:
  /// What a failing console keeps of the text that it was given.
  static constexpr std::size_t kMaxKeptBytes = 1 << 20;

  explicit LogConsole(int fd);

  /// What is to be written: append, then call flush().
  std::string& buffer() { return buffer_; }
  /// Writes as much as goes without waiting.
  void flush();
  /// Nobody waits for this console any more: drops what it does not take at once.
  void give_up();

  std::size_t unwritten_bytes() const { return closed_ ? 0 : buffer_.size() - written_; }
  /// Its reader is gone (EPIPE and the like): what is appended is thrown away.
  bool is_closed() const { return closed_; }
  bool is_failing() const { return failing_; }
  /// What is appended may be dropped: its writers are not held up.
  bool is_lossy() const { return failing_ || given_up_ || closed_; }
  /// All bytes that were dropped while somebody could still have read them.
  std::size_t lost_bytes() const { return lost_; }
  bool is_given_up() const { return given_up_; }
  /// Bytes that never came to buffer() are lost, too.
  void count_lost(std::size_t bytes) { lost_ += bytes; }
  /// To be waited on for room when something is unwritten.
  int fd() const { return fd_.get(); }
  bool fd_is_open() const { return fd_.is_open(); }

 private:
  enum class Kind { File, Stream, CarefulStream, Socket };
  void open_again(int fd);
  bool write_some(std::size_t end);
  void on_error(int error);
  bool reader_is_gone(int error) const;
  void drop_behind(std::size_t kept_bytes);
  void mark_gap();

  int number_;  // As the user knows it: 1 or 2.
  OwnedFd fd_;
  Kind kind_ = Kind::File;
  std::string buffer_;
  std::size_t written_ = 0;
  std::optional<std::size_t> gap_;  // Where in buffer_ bytes were dropped that no line names yet.
  std::size_t gap_bytes_ = 0;
  std::size_t lost_ = 0;
  bool ends_line_ = true;  // What was written so far.
  bool failing_ = false;
  bool given_up_ = false;
  bool closed_ = false;
};

}  // namespace muster
