#include "agent/posix/rescue_output.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <string_view>
#include <utility>

#include "base/system/same_file.h"
#include "base/system/wait_for_room.h"

namespace muster {
namespace {

constexpr std::size_t kBytesAtOnce = 64 << 10;
constexpr std::size_t kBytesPerTurn = 256 << 10;  // The most that is copied before the next pipe.
constexpr const char* kLogFiles = "log files";    // The group of all log files.

/// The descriptor of muster's own that `file` names; -1: it names a log file.
int console_of(const std::string& file) {
  if (file == "/dev/fd/1") return STDOUT_FILENO;
  return file == "/dev/fd/2" ? STDERR_FILENO : -1;
}

/// A file and a socket are written through a copy of muster's own descriptor: the copy shares the
/// position in the file, and a socket cannot be opened a second time. A pipe or a terminal is
/// opened again, because the inherited descriptor may have O_NONBLOCK; if it is another user's,
/// that fails.
OwnedFd open_console(int fd, const std::string& path) {
  struct stat info {};
  const bool is_shared =
      ::fstat(fd, &info) == 0 && (S_ISREG(info.st_mode) || S_ISSOCK(info.st_mode));
  OwnedFd opened(is_shared ? -1 : ::open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC));
  return opened.is_open() ? std::move(opened) : OwnedFd(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
}

/// Another file may have the log file's name by now (`mv`, logrotate's `create`). If /proc cannot
/// be used, the name must still lead to the log file.
OwnedFd open_log_file(const OutputReader& reader) {
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CLOEXEC;
  const std::string link = "/proc/self/fd/" + std::to_string(reader.handle.get());
  OwnedFd same(reader.handle.is_open() ? ::open(link.c_str(), kFlags) : -1);
  if (same.is_open()) return same;
  OwnedFd named(::open(reader.file.c_str(), kFlags));
  const bool is_right = !reader.handle.is_open() || is_one_file(named.get(), reader.handle.get());
  return is_right ? std::move(named) : OwnedFd();
}

OwnedFd open_target(const OutputReader& reader) {
  const int console = console_of(reader.file);
  return console >= 0 ? open_console(console, reader.file) : open_log_file(reader);
}

/// Waits for room if the descriptor does not block. Drops the rest after an error.
void write_or_drop(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file, bytes.data(), bytes.size());
    if (n > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (n < 0 && errno == EAGAIN) {
      wait_for_room(file, -1);
    } else if (n == 0 || errno != EINTR) {
      return;
    }
  }
}

/// Copies for one turn: a worker may fill its pipe faster than the file or console takes the bytes.
/// False if no process holds the other end any more.
bool copy_what_is_there(int pipe, int file) {
  static std::array<char, kBytesAtOnce> buffer;
  for (std::size_t total = 0; total < kBytesPerTurn;) {
    const ssize_t n = ::read(pipe, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    if (n == 0) return false;
    total += static_cast<std::size_t>(n);
    write_or_drop(file, {buffer.data(), static_cast<std::size_t>(n)});
  }
  return true;
}

void copy_all(const std::vector<OutputReader>& readers) {
  std::vector<pollfd> pipes;
  std::vector<OwnedFd> files;
  for (const OutputReader& reader : readers) {
    pipes.push_back({reader.fd.get(), POLLIN, 0});
    files.push_back(open_target(reader));
  }
  for (std::size_t open = pipes.size(); open > 0;) {
    if (::poll(pipes.data(), pipes.size(), -1) < 0 && errno != EINTR) return;
    for (std::size_t i = 0; i < pipes.size(); ++i) {
      if (pipes[i].fd < 0 || pipes[i].revents == 0 ||
          copy_what_is_there(pipes[i].fd, files[i].get()))
        continue;
      pipes[i].fd = -1;  // poll() ignores this entry from now on.
      --open;
    }
  }
}

}  // namespace

void OutputRescue::add(std::vector<OutputReader> readers) {
  for (OutputReader& reader : readers) {
    const bool is_log = !reader.file.empty() && console_of(reader.file) < 0;
    waiting_[is_log ? kLogFiles : reader.file].push_back(std::move(reader));
  }
}

bool OutputRescue::begin() {
  const pid_t parent = ::getpid();
  for (auto group = waiting_.begin(); group != waiting_.end();) {
    const pid_t child = ::fork();
    if (child < 0) return true;
    if (child == 0) copy_in_child(group->first, parent);
    processes_.insert(child);
    group = waiting_.erase(group);
  }
  return !processes_.empty();
}

void OutputRescue::copy_in_child(const std::string& group, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const Readers readers = std::move(waiting_[group]);
  waiting_.clear();  // Closes the pipes of the others: their own children read them.
  if (::getppid() == parent) copy_all(readers);
  ::_exit(0);
}

}  // namespace muster
