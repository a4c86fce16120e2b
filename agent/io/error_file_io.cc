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
#include "base/from_errno.h"
#include "base/system/clock.h"
#include "base/system/owned_fd.h"
#include "base/system/same_file.h"
#include "base/whole_number.h"

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

/// A folder entry: `name` in the folder that `folder` is open for.
struct Entry {
  OwnedFd folder;
  std::string name;
};

/// Entry of `path`. Its folder is not open if that fails, with errno.
Entry entry_of(const fs::path& path) {
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  return {OwnedFd(::open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)), path.filename()};
}

/// The entry that leads to `fd`, a file that was opened as `path`. Its folder is not open if the
/// kernel does not tell, or if the entry leads to another file by now.
Entry entry_of_opened(int fd, const std::string& path, bool is_link) {
  std::error_code ec;
  const fs::path real =
      is_link ? fs::read_symlink("/proc/self/fd/" + std::to_string(fd), ec) : fs::path(path);
  if (ec) return {};
  Entry entry = entry_of(real);
  struct stat named {};
  struct stat opened {};
  const bool is_same =
      entry.folder.is_open() && ::fstat(fd, &opened) == 0 &&
      ::fstatat(entry.folder.get(), entry.name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
      is_same_file(named, opened);
  return is_same ? std::move(entry) : Entry{};
}

error_code write_in_place(int fd, const std::string& text) {
  (void)!::ftruncate(fd, 0);  // Fails for a FIFO and a device.
  const error_code error = write_all_in_time(fd, text);
  if (error) (void)!::ftruncate(fd, 0);  // An empty file is clearly no report.
  return error;
}

// Writes a file beside `entry`, and renames it to that name. `mode` is the mode of the file that is
// replaced; nothing if there is none.
error_code replace(const Entry& entry, const std::string& text, std::optional<mode_t> mode) {
  const int folder = entry.folder.get();
  const std::string temporary = entry.name + ".muster-" + random_name(8);
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  OwnedFd fd(::openat(folder, temporary.c_str(), kFlags, kMode));
  if (!fd.is_open()) return from_errno(errno);
  error_code error = write_all_in_time(fd.get(), text);
  if (!error && mode && ::fchmod(fd.get(), *mode & 07777) != 0) error = from_errno(errno);
  if (!error && ::fsync(fd.get()) != 0) error = from_errno(errno);
  fd.reset();
  if (!error && ::renameat(folder, temporary.c_str(), folder, entry.name.c_str()) != 0)
    error = from_errno(errno);
  if (error) ::unlinkat(folder, temporary.c_str(), 0);
  return error;
}

// After these errors (a mount point, a directory that is not writable), the file itself may be
// writable.
bool may_work_in_place(int error) {
  return error == EBUSY || error == EXDEV || error == EACCES || error == EPERM || error == EROFS;
}

// Only the kernel follows links, and it opens the file before muster replaces it: so the kernel's
// rules for links, FIFOs and files in shared folders hold (fs.protected_symlinks and the like, see
// proc(5)). O_CREAT is what asks for the last two.
error_code write_existing(const std::string& path, bool is_link, const std::string& text) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  const OwnedFd fd(::open(path.c_str(), kFlags, kMode));
  struct stat info {};
  if (!fd.is_open() || ::fstat(fd.get(), &info) != 0) return from_errno(errno);
  // Another user's file stays that user's.
  if (S_ISREG(info.st_mode) && info.st_uid == ::geteuid()) {
    const Entry entry = entry_of_opened(fd.get(), path, is_link);
    if (entry.folder.is_open()) {
      const error_code error = replace(entry, text, info.st_mode);
      if (!may_work_in_place(error.value())) return error;
    }
  }
  return write_in_place(fd.get(), text);
}

error_code write_new(const std::string& path, const std::string& text) {
  const Entry entry = entry_of(path);
  if (!entry.folder.is_open()) return from_errno(errno);
  return replace(entry, text, std::nullopt);
}

/// Whether another user has put `entry` into a folder like /tmp, where every user may create names,
/// and only their owners may remove them. The kernel has the same rule, but a system may turn it
/// off.
bool is_planted(const std::string& path, const struct stat& entry) {
  const fs::path parent = fs::path(path).parent_path();
  struct stat folder {};
  if (::stat(parent.empty() ? "." : parent.c_str(), &folder) != 0) return false;
  const bool is_shared = (folder.st_mode & S_ISVTX) != 0 && (folder.st_mode & S_IWOTH) != 0;
  return is_shared && entry.st_uid != ::geteuid() && entry.st_uid != folder.st_uid;
}

/// Whether the kernel follows `path` to its end. If `path` leads nowhere, that counts as yes.
bool may_follow(const std::string& path) {
  return OwnedFd(::open(path.c_str(), O_PATH | O_CLOEXEC)).is_open() || errno == ENOENT;
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
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 && errno != ENOENT) return from_errno(errno);
  const bool exists = info.st_mode != 0;
  if (exists && is_planted(path, info)) return from_errno(EACCES);
  if (!may_follow(path)) return from_errno(errno);
  if (const auto fd = inherited_descriptor(path)) return write_all_in_time(*fd, text);
  return exists ? write_existing(path, S_ISLNK(info.st_mode), text) : write_new(path, text);
}

}  // namespace muster
