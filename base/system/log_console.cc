#include "base/system/log_console.h"

#include <fcntl.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include <climits>
#include <spdlog/spdlog.h>

#include "base/system/same_file.h"
#include "base/system/wait_for_room.h"

namespace muster {
namespace {

constexpr int kFirstFreeFd = 3;  // 0 to 2 are for standard streams only, even if they were closed.
// The signals that end a wait for a terminal: the first one and, if it came too early, the next.
constexpr long kTerminalWaitNs = 20'000'000;

bool set_lock(int fd, int command, short type, flock& lock) {
  lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = std::numeric_limits<off_t>::max() - ::getpid();  // No program locks this byte.
  lock.l_len = 1;
  return ::fcntl(fd, command, &lock) == 0;
}

/// Whether both descriptors are copies of one that was opened once: a lock of an open file is then
/// no obstacle to the other descriptor. Changes neither the file nor its position.
bool share_locks(int fd, int other_fd) {
  flock lock{};
  if (!set_lock(fd, F_OFD_SETLK, F_WRLCK, lock)) return false;
  const bool is_free = set_lock(other_fd, F_OFD_GETLK, F_WRLCK, lock) && lock.l_type == F_UNLCK;
  set_lock(fd, F_OFD_SETLK, F_UNLCK, lock);
  return is_free;
}

/// A timer that sends SIGURG to this thread again and again. The signal does nothing but end a
/// system call that waits. Its default action is to do nothing, too.
class Interrupter {
 public:
  Interrupter() {
    struct sigaction action {};
    action.sa_handler = [](int) {};  // Without SA_RESTART.
    ::sigaction(SIGURG, &action, nullptr);
    sigset_t urgent;
    ::sigemptyset(&urgent);
    ::sigaddset(&urgent, SIGURG);
    ::pthread_sigmask(SIG_UNBLOCK, &urgent, &before_);
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGURG;
    event._sigev_un._tid = static_cast<int>(::syscall(SYS_gettid));
    // By number: glibc before 2.34 has the functions in another library.
    if (::syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer_) != 0) timer_ = -1;
    const itimerspec times{.it_interval = {0, kTerminalWaitNs}, .it_value = {0, kTerminalWaitNs}};
    if (timer_ >= 0) ::syscall(SYS_timer_settime, timer_, 0, &times, nullptr);
  }
  ~Interrupter() {
    if (timer_ >= 0) ::syscall(SYS_timer_delete, timer_);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  Interrupter(const Interrupter&) = delete;
  Interrupter& operator=(const Interrupter&) = delete;
  Interrupter(Interrupter&&) = delete;
  Interrupter& operator=(Interrupter&&) = delete;

 private:
  int timer_ = -1;
  sigset_t before_{};
};

/// Writes to a terminal that cannot be opened without blocking: it belongs to another user (su,
/// gosu). One that has room for a byte may lack room for more. -1 with EAGAIN if it has no room.
ssize_t write_to_terminal(int fd, const char* data, std::size_t size) {
  ssize_t n = 0;
  int error = 0;
  {
    const Interrupter interrupter;
    n = ::write(fd, data, size);
    error = errno;
  }
  errno = error == EINTR ? EAGAIN : error;
  return n;
}

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
  // Docker allows kcmp only with CAP_SYS_PTRACE.
  constexpr int kQueryDuplicate = 1027;  // F_DUPFD_QUERY, Linux 6.10.
  if (const int query = ::fcntl(fd, kQueryDuplicate, other_fd); query >= 0) return query == 1;
  const int flags = ::fcntl(fd, F_GETFL) & ::fcntl(other_fd, F_GETFL);
  if ((flags & O_APPEND) != 0) return true;  // If both append, the order is kept, too.
  return share_locks(fd, other_fd);
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
    kind_ = ::isatty(fd) == 1 ? Kind::CarefulTerminal : Kind::CarefulStream;
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
    case Kind::CarefulTerminal:
      if (!wait_for_room(fd_.get(), 0)) return false;
      n = write_to_terminal(fd_.get(), data, std::min<std::size_t>(size, PIPE_BUF));
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
