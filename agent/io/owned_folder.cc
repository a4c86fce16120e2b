#include "agent/io/owned_folder.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/from_errno.h"
#include "base/system/same_file.h"
#include "base/system/system_random.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "muster_";
constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz012345";  // 32: no bias.
// 100 random bits. Earlier versions used 8, 21 or 27 letters: those names are left alone.
constexpr std::size_t kNameLetters = 20;
constexpr int kNamesMax = 4096;
constexpr int kRemovedMax = 64;
constexpr int kLockWaits = 2000;  // Of 1 ms each.

bool is_owned_folder_name(std::string_view name) {
  return name.starts_with(kPrefix) && name.size() == kPrefix.size() + kNameLetters &&
         name.find_first_not_of(kLetters, kPrefix.size()) == std::string_view::npos;
}

OwnedFd open_folder(const std::string& path) {
  return OwnedFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

/// Whether `path` is the folder that was opened as `folder`, and this user's.
bool is_owned_folder_at(const std::string& path, const OwnedFd& folder) {
  struct stat named {};
  struct stat opened {};
  return ::lstat(path.c_str(), &named) == 0 && ::fstat(folder.get(), &opened) == 0 &&
         is_same_file(named, opened) && opened.st_uid == ::geteuid();
}

/// Returns 0 or an errno. EWOULDBLOCK: another process holds the lock.
int try_lock(const OwnedFd& folder) {
  return ::flock(folder.get(), LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
}

// Another process can hold the lock of a new folder only to remove the folder.
int lock_new(const OwnedFd& folder) {
  int error = try_lock(folder);
  for (int waits = 0; error == EWOULDBLOCK && waits < kLockWaits; ++waits) {
    ::poll(nullptr, 0, 1);
    error = try_lock(folder);
  }
  return error;
}

/// True if the folder was removed. Holds the lock while it is removed.
bool remove_if_orphan(const std::string& path) {
  const OwnedFd folder = open_folder(path);
  if (!folder.is_open() || !is_owned_folder_at(path, folder) || !is_local_disk(folder))
    return false;
  if (try_lock(folder) != 0 || !is_owned_folder_at(path, folder) || holds_a_file(path))
    return false;
  std::error_code ec;
  fs::remove_all(path, ec);
  return true;
}

}  // namespace

std::string random_name(std::size_t count) {
  std::array<std::uint8_t, 64> bytes{};
  std::string name;
  if (!fill_random(bytes)) return "unnamed";
  for (std::size_t i = 0; i < std::min(count, bytes.size()); ++i)
    name += kLetters[bytes[i] % kLetters.size()];
  return name;
}

std::string owned_folder_name() {
  return std::string(kPrefix) + random_name(kNameLetters);
}

Result<OwnedFd> create_owned_folder(const std::string& path) {
  for (;;) {
    // If another user has taken the name of a folder that was removed, this fails with EEXIST.
    if (::mkdir(path.c_str(), 0700) != 0) return from_errno(errno);
    OwnedFd folder = open_folder(path);
    if (!folder.is_open()) {
      if (errno == ENOENT) continue;
      const int error = errno;
      ::rmdir(path.c_str());
      return from_errno(error);
    }
    if (!is_local_disk(folder)) return folder;
    if (lock_new(folder) == EWOULDBLOCK) return from_errno(EWOULDBLOCK);
    if (is_owned_folder_at(path, folder)) return folder;
  }
}

// The numbers are F2FS, XFS, overlay and ZFS, which older headers do not name.
bool is_local_disk(const OwnedFd& folder) {
  constexpr std::array<std::uint32_t, 8> kLocal{TMPFS_MAGIC,       RAMFS_MAGIC, EXT4_SUPER_MAGIC,
                                                BTRFS_SUPER_MAGIC, 0xf2f52010,  0x58465342,
                                                0x794c7630,        0x2fc12fc1};
  struct statfs info {};
  return ::fstatfs(folder.get(), &info) == 0 &&
         std::find(kLocal.begin(), kLocal.end(), static_cast<std::uint32_t>(info.f_type)) !=
             kLocal.end();
}

bool is_local_disk(const std::string& path) {
  return is_local_disk(open_folder(path));
}

bool is_same_folder(const struct stat& named, const OwnedFd& folder) {
  struct stat opened {};
  if (!S_ISDIR(named.st_mode)) return false;
  return ::fstat(folder.get(), &opened) != 0 || is_same_file(named, opened) ||
         !is_local_disk(folder);
}

bool holds_a_file(const std::string& dir) {
  // A range-based for loop would throw if another agent removes the directory at this moment.
  std::error_code ec;
  for (fs::recursive_directory_iterator at(dir, ec), end; !ec && at != end; at.increment(ec)) {
    std::error_code gone;
    if (at->is_regular_file(gone) && at->file_size(gone) > 0 && !gone) return true;
  }
  return ec && ec != std::errc::no_such_file_or_directory;  // An unreadable one may hold a file.
}

void remove_orphans_in(const std::string& place) {
  int names = 0;
  int removed = 0;
  std::error_code ec;
  for (fs::directory_iterator at(place, ec), end;
       !ec && at != end && names < kNamesMax && removed < kRemovedMax; at.increment(ec), ++names)
    if (is_owned_folder_name(at->path().filename().native()) && remove_if_orphan(at->path()))
      ++removed;
}

}  // namespace muster
