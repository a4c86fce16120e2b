#include "rendezvous/net/log_console.h"

#include <fcntl.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include <climits>
#include <spdlog/spdlog.h>

#include "rendezvous/net/same_file.h"
#include "rendezvous/net/wait_for_room.h"

namespace muster {
namespace {

constexpr int kFirstFreeFd = 3;  // 0 to 2 are for standard streams only, even if they were closed.

}  // namespace

bool is_one_console(int fd, int other_fd) {
  struct stat a {};
  struct stat b {};
  if (::fstat(fd, &a) != 0 || ::fstat(other_fd, &b) != 0) return false;
  if (!is_same_file(a, b)) return false;
  if (!S_ISREG(a.st_mode)) return true;
  // Two descriptors of one file share a position only if one is a copy of the other.
  const long same = ::syscall(SYS_kcmp, ::getpid(), ::getpid(), KCMP_FILE, fd, other_fd);
  if (same >= 0) return same == 0;
  const int flags = ::fcntl(fd, F_GETFL) & ::fcntl(other_fd, F_GETFL);
  return (flags & O_APPEND) != 0;  // Without kcmp: if both append, the order is kept, too.
}

void LogConsole::log_warning(const std::string& text) {
  spdlog::warn(text);
}

LogConsole::LogConsole(int fd, Report report) : number_(fd), report_(report) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) {
    closed_ = true;  // muster was started with this descriptor closed: the output is not wanted.
    return;
  }
  if (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode)) {
    reopen(fd);
  } else {
    fd_ = OwnedFd(::fcntl(fd, F_DUPFD_CLOEXEC, kFirstFreeFd));
    kind_ = S_ISSOCK(status.st_mode) ? Kind::Socket : Kind::File;
  }
  if (!fd_.is_open()) open_error_ = errno;
  closed_ = !fd_.is_open();
}

void LogConsole::reopen(int fd) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  OwnedFd again(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (again.is_open() && again.get() < kFirstFreeFd)
    again = OwnedFd(::fcntl(again.get(), F_DUPFD_CLOEXEC, kFirstFreeFd));
  kind_ = Kind::Stream;
  if (!again.is_open()) {
    again = OwnedFd(::fcntl(fd, F_DUPFD_CLOEXEC, kFirstFreeFd));
    kind_ = Kind::CarefulStream;
  }
  fd_ = std::move(again);
}

// Writes bytes up to `end` of the buffer. True if another try at once makes sense.
bool LogConsole::write_some(std::size_t end) {
  const char* data = buffer_.data() + written_;
  std::size_t size = end - written_;
  ssize_t n = 0;
  switch (kind_) {
    case Kind::Socket:
      n = ::send(fd_.get(), data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
      break;
    case Kind::CarefulStream:
      // A pipe with any room takes PIPE_BUF bytes at once.
      if (!wait_for_room(fd_.get(), 0)) return false;
      size = std::min<std::size_t>(size, PIPE_BUF);
      [[fallthrough]];
    case Kind::File:
    case Kind::Stream:
      n = ::write(fd_.get(), data, size);
      break;
  }
  if (n > 0) {
    written_ += static_cast<std::size_t>(n);
    ends_line_ = buffer_[written_ - 1] == '\n';
    failing_ = false;
    return true;
  }
  if (n < 0 && errno == EINTR) return true;
  if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) on_error(errno);
  return false;
}

void LogConsole::on_error(int error) {
  const std::string reason = std::generic_category().message(error);
  if (reader_is_gone(error)) {
    closed_ = true;
    report_("console_closed fd=" + std::to_string(number_) + " reason=\"" + reason + "\"");
    return;
  }
  if (std::exchange(failing_, true) || given_up_) return;
  report_("descriptor " + std::to_string(number_) + " cannot be written (" + reason +
          "): muster tries again, and counts what is lost");
}

// A terminal after a hang-up returns EIO for ever. A disk may recover from EIO. ENOMEM (a pipe) and
// ENOBUFS (a socket) say that the kernel has no memory for the bytes now.
bool LogConsole::reader_is_gone(int error) const {
  if (error == ENOSPC || error == EDQUOT || error == EFBIG || error == ENOMEM || error == ENOBUFS)
    return false;
  if (error != EIO) return true;
  pollfd request{fd_.get(), POLLOUT, 0};
  return ::poll(&request, 1, 0) == 1 && (request.revents & (POLLHUP | POLLERR)) != 0;
}

void LogConsole::flush() {
  const auto end = [this] { return gap_.value_or(buffer_.size()); };
  while (!closed_) {
    if (written_ < end()) {
      if (!write_some(end())) break;
    } else if (gap_) {
      mark_gap(*gap_);
    } else {
      break;
    }
  }
  if (!closed_ && (given_up_ || failing_ || limited_)) drop_excess(given_up_ ? 0 : kMaxKeptBytes);
  if (closed_ || (written_ == buffer_.size() && !gap_)) {
    buffer_.clear();
    written_ = 0;
    gap_.reset();
  } else if (written_ > buffer_.size() / 2) {
    buffer_.erase(0, written_);
    if (gap_) *gap_ -= written_;
    written_ = 0;
  }
}

void LogConsole::give_up() {
  given_up_ = true;
  flush();
}

// Keeps at most `kept_bytes`, and drops the bytes behind them. Keeps whole lines if there are any.
void LogConsole::drop_excess(std::size_t kept_bytes) {
  std::size_t end = gap_.value_or(buffer_.size());
  if (end > written_ + kept_bytes) {
    const std::size_t newline =
        kept_bytes == 0 ? std::string::npos : buffer_.rfind('\n', written_ + kept_bytes - 1);
    const bool has_line = newline != std::string::npos && newline >= written_;
    end = has_line ? newline + 1 : written_ + kept_bytes;
  } else if (!gap_) {
    return;
  }
  gap_bytes_ += buffer_.size() - end;
  lost_ += buffer_.size() - end;
  buffer_.resize(end);
  gap_ = end;
  if (given_up_) gap_.reset();  // No line about the missing bytes can follow.
}

void LogConsole::mark_gap(std::size_t at) {
  const std::string text = (ends_line_ ? "[muster: " : "\n[muster: ") + std::to_string(gap_bytes_) +
                           " bytes are missing here: they could not be written]\n";
  buffer_.insert(at, text);
  gap_.reset();
  gap_bytes_ = 0;
}

}  // namespace muster
