#include "agent/io/error_file_io.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "agent/core/error_file.h"
#include "agent/io/owned_folder.h"
#include "agent/posix/process_scan.h"
#include "rendezvous/core/from_errno.h"
#include "rendezvous/core/whole_number.h"
#include "rendezvous/net/clock.h"
#include "rendezvous/net/owned_fd.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using boost::system::error_code;

constexpr Duration kReaderLimit = std::chrono::seconds(2);
constexpr int kMaxLinks = 16;

// Waits at most kReaderLimit: `fd` may be a non-blocking FIFO or terminal with a slow reader.
error_code write_all_in_time(int fd, std::string_view text) {
  const Instant end = now() + kReaderLimit;
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<std::size_t>(n));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return from_errno(errno);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - now()).count();
    pollfd room{fd, POLLOUT, 0};
    if (left <= 0 || ::poll(&room, 1, static_cast<int>(left)) == 0) return from_errno(ETIMEDOUT);
  }
  return {};
}

// The number in /dev/fd/3 or /proc/self/fd/3, also if symbolic links such as /dev/stdout lead
// there. Nothing for a descriptor that muster opened itself: those are all close-on-exec.
std::optional<int> inherited_descriptor(fs::path path) {
  for (int links = 0; links < kMaxLinks; ++links) {
    const std::string dir = path.parent_path();
    if (dir == "/dev/fd" || dir == "/proc/self/fd") {
      const auto fd = whole_number<int>(path.filename().native());
      if (!fd) return std::nullopt;
      const int flags = ::fcntl(*fd, F_GETFD);
      return flags >= 0 && (flags & FD_CLOEXEC) == 0 ? fd : std::nullopt;
    }
    std::error_code ec;
    const fs::path next = fs::read_symlink(path, ec);
    if (ec) return std::nullopt;
    path = path.parent_path() / next;  // An absolute `next` replaces the whole path.
  }
  return std::nullopt;
}

// Only this user may read a new file, because tracebacks may show private data of a job. An
// existing file keeps its mode.
constexpr mode_t kMode = 0600;

error_code write_in_place(const std::string& path, const std::string& text) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  const OwnedFd fd(::open(path.c_str(), kFlags, kMode));
  if (!fd.is_open()) return from_errno(errno);
  const error_code error = write_all_in_time(fd.get(), text);
  // An empty file is clearly no report. Fails for a FIFO and a device.
  if (error) (void)!::ftruncate(fd.get(), 0);
  return error;
}

// `mode` is the mode of the file that is replaced; nothing if there is none.
error_code replace(const std::string& path, const std::string& text, std::optional<mode_t> mode) {
  const std::string temporary = path + ".muster-" + random_name(8);
  OwnedFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode));
  if (!fd.is_open()) return from_errno(errno);
  error_code error = write_all_in_time(fd.get(), text);
  if (!error && mode && ::fchmod(fd.get(), *mode & 07777) != 0) error = from_errno(errno);
  if (!error && ::fsync(fd.get()) != 0) error = from_errno(errno);
  fd.reset();
  if (!error && ::rename(temporary.c_str(), path.c_str()) != 0) error = from_errno(errno);
  if (error) ::unlink(temporary.c_str());
  return error;
}

// After these errors (a mount point, a directory that is not writable), the file itself may be
// writable.
bool may_work_in_place(int error) {
  return error == EBUSY || error == EXDEV || error == EACCES || error == EPERM || error == EROFS;
}

}  // namespace

std::optional<std::string> read_error_file_at(const std::string& path) {
  if (path.empty()) return std::nullopt;
  // The worker may have left anything there, also a FIFO: the open must not wait.
  const OwnedFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd.is_open() || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return read_beginning(fd.get(), kMaxErrorFileBytes + 1);
}

error_code write_whole_file(const std::string& path, const std::string& text) {
  if (const auto fd = inherited_descriptor(path)) return write_all_in_time(*fd, text);
  std::string target = path;
  struct stat info {};
  const bool exists = ::lstat(path.c_str(), &info) == 0;
  if (exists && S_ISLNK(info.st_mode)) {
    std::error_code ec;
    target = fs::canonical(path, ec);
    if (ec || ::lstat(target.c_str(), &info) != 0) return write_in_place(path, text);
  }
  if (exists && !S_ISREG(info.st_mode)) return write_in_place(path, text);
  const error_code error =
      replace(target, text, exists ? std::optional(info.st_mode) : std::nullopt);
  return may_work_in_place(error.value()) ? write_in_place(target, text) : error;
}

}  // namespace muster
