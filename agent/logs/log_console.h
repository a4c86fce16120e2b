// The console that the workers' output goes to: written without ever waiting for it.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

namespace muster {

/// A descriptor that closes itself.
class LogFd {
 public:
  LogFd() = default;
  explicit LogFd(int fd) : fd_(fd) {}
  LogFd(LogFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  LogFd& operator=(LogFd&& other) noexcept;
  ~LogFd() { reset(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void reset();
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

/// True if both descriptors lead to the same place: one terminal, one pipe, one open file. Then
/// what is written to one after the other also arrives so.
bool is_one_console(int fd, int other_fd);

/// The inherited descriptor is shared with the workers and with whoever started us, so its flags
/// are left alone: O_NONBLOCK on it would hit them all. Pipes and terminals are opened once more
/// through /proc; where that is not allowed, they are written to in portions that cannot block.
class LogConsole {
 public:
  explicit LogConsole(int fd);

  /// What is to be written: append, then call flush().
  std::string& buffer() { return buffer_; }
  /// Writes as much as goes without waiting.
  void flush();
  std::size_t unwritten_bytes() const { return closed_ ? 0 : buffer_.size() - written_; }
  /// Nobody reads any more (EPIPE and the like): what is appended is thrown away.
  bool is_closed() const { return closed_; }
  /// To be waited on for room when something is unwritten.
  int fd() const { return fd_.get(); }
  bool fd_is_open() const { return fd_.is_open(); }

 private:
  enum class Kind { File, Stream, CarefulStream, Socket };
  void open_again(int fd);
  bool write_some();

  int number_;  // As the user knows it: 1 or 2.
  LogFd fd_;
  Kind kind_ = Kind::File;
  std::string buffer_;
  std::size_t written_ = 0;
  bool closed_ = false;
};

}  // namespace muster
