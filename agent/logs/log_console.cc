#include "agent/logs/log_console.h"

#include <fcntl.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <climits>
#include <spdlog/spdlog.h>

namespace muster {
namespace {

constexpr int kFirstFreeFd = 3;  // 0 to 2 stay the standard streams, even if they were closed.

bool has_room(int fd) {
  pollfd request{fd, POLLOUT, 0};
  return ::poll(&request, 1, 0) == 1;
}

}  // namespace

LogFd& LogFd::operator=(LogFd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

void LogFd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

bool is_one_console(int fd, int other_fd) {
  struct stat a {};
  struct stat b {};
  if (::fstat(fd, &a) != 0 || ::fstat(other_fd, &b) != 0) return false;
  if (a.st_dev != b.st_dev || a.st_ino != b.st_ino) return false;
  if (!S_ISREG(a.st_mode)) return true;
  // Two descriptors of one file have one position only if they are copies of each other.
  const long same = ::syscall(SYS_kcmp, ::getpid(), ::getpid(), KCMP_FILE, fd, other_fd);
  if (same >= 0) return same == 0;
  const int flags = ::fcntl(fd, F_GETFL) & ::fcntl(other_fd, F_GETFL);
  return (flags & O_APPEND) != 0;  // No kcmp here: both go to the end, so order is kept.
}

LogConsole::LogConsole(int fd) : number_(fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) {
    closed_ = true;  // Started with the descriptor closed: nobody wants to see anything.
    return;
  }
  if (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode)) {
    open_again(fd);
  } else {
    fd_ = LogFd(::fcntl(fd, F_DUPFD_CLOEXEC, kFirstFreeFd));
    kind_ = S_ISSOCK(status.st_mode) ? Kind::Socket : Kind::File;
  }
  closed_ = !fd_.is_open();
}

void LogConsole::open_again(int fd) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  LogFd again(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (again.is_open() && again.get() < kFirstFreeFd)
    again = LogFd(::fcntl(again.get(), F_DUPFD_CLOEXEC, kFirstFreeFd));
  kind_ = Kind::Stream;
  if (!again.is_open()) {
    again = LogFd(::fcntl(fd, F_DUPFD_CLOEXEC, kFirstFreeFd));
    kind_ = Kind::CarefulStream;
  }
  fd_ = std::move(again);
}

bool LogConsole::write_some() {
  const char* data = buffer_.data() + written_;
  std::size_t size = buffer_.size() - written_;
  ssize_t n = 0;
  switch (kind_) {
    case Kind::Socket:
      n = ::send(fd_.get(), data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
      break;
    case Kind::CarefulStream:
      // A pipe with any room takes PIPE_BUF bytes at once.
      if (!has_room(fd_.get())) return false;
      size = std::min<std::size_t>(size, PIPE_BUF);
      [[fallthrough]];
    case Kind::File:
    case Kind::Stream:
      n = ::write(fd_.get(), data, size);
      break;
  }
  if (n > 0) {
    written_ += static_cast<std::size_t>(n);
    return true;
  }
  if (n < 0 && errno == EINTR) return true;
  if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
    const int error = errno;
    closed_ = true;  // Before the line below, which may want to go the same way.
    spdlog::warn("console_closed fd={} reason=\"{}\"", number_,
                 std::generic_category().message(error));
  }
  return false;
}

void LogConsole::flush() {
  while (!closed_ && written_ < buffer_.size())
    if (!write_some()) break;
  if (closed_ || written_ == buffer_.size()) {
    buffer_.clear();
    written_ = 0;
  } else if (written_ > buffer_.size() / 2) {
    buffer_.erase(0, written_);
    written_ = 0;
  }
}

}  // namespace muster
