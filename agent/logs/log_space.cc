#include "agent/logs/log_space.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

#include <spdlog/spdlog.h>

namespace muster {
namespace {

constexpr std::int64_t kDefaultBlockBytes = 4096;
constexpr std::int64_t kMaxBlockBytes = 16 << 10;
constexpr std::int64_t kSmallestReserveBytes = 64 << 10;

bool is_full(int error) {
  return error == EFBIG || is_disk_full(error);
}

/// Whether it is `ulimit -f` that keeps a file of this size from growing.
bool is_at_size_limit(std::int64_t size) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
         static_cast<std::uint64_t>(size) + kMinReserveBytes > limit.rlim_cur;
}

int allocate(int fd, const LogRange& range) {
  int result = 0;
  do {
    result = ::fallocate(fd, FALLOC_FL_KEEP_SIZE, range.offset, range.length);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

std::int64_t block_bytes(int fd) {
  struct statvfs disk {};
  if (::fstatvfs(fd, &disk) != 0) return kDefaultBlockBytes;
  const auto block = static_cast<std::int64_t>(disk.f_bsize);
  return block >= 512 && block <= kMaxBlockBytes ? block : kDefaultBlockBytes;
}

std::string megabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MB", bytes / 1e6);
  return text;
}

// "MOUNT POINT (TYPE": of the last mount of that device, as mountinfo of proc(5) has them.
std::string mount_of(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return "? (?";
  const std::string device =
      std::to_string(major(status.st_dev)) + ":" + std::to_string(minor(status.st_dev));
  std::ifstream mounts("/proc/self/mountinfo");
  std::string found = "? (?";
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string id, parent, number, root, point, word, type;
    words >> id >> parent >> number >> root >> point;
    if (number != device) continue;
    while (words >> word && word != "-") {
    }
    words >> type;
    found = point;
    found.append(" (").append(type);
  }
  return found;
}

}  // namespace

bool is_disk_full(int error) {
  return error == ENOSPC || error == EDQUOT;
}

int reserve_log_space(int fd) {
  if (is_at_size_limit(0)) return EFBIG;
  const int error = allocate(fd, {0, kMinReserveBytes});
  return is_full(error) ? error : 0;
}

std::string describe_disk(int fd) {
  struct statvfs disk {};
  std::string text = mount_of(fd);
  if (::fstatvfs(fd, &disk) != 0) return text + ")";
  const auto unit = static_cast<double>(disk.f_frsize);
  return text + ", " + megabytes(unit * static_cast<double>(disk.f_blocks)) + ", " +
         megabytes(unit * static_cast<double>(disk.f_bavail)) + " free)";
}

LogSpace::LogSpace(std::string path, const LogSpaceOptions& options)
    : path_(std::move(path)),
      options_(options),
      fd_(::open(path_.c_str(), O_RDWR | O_CLOEXEC)),
      room_({.max_bytes = options.max_bytes,
             .block_bytes = block_bytes(fd_.get()),
             .reserved_to = kMinReserveBytes}) {}

std::optional<LogRemoval> LogSpace::look(std::int64_t read_to,
                                         const std::function<std::int64_t()>& read_on) {
  struct stat status {};
  if (!fd_.is_open() || ::fstat(fd_.get(), &status) != 0) return std::nullopt;
  size_ = status.st_size;
  room_.seen(size_);
  if (const auto cut = room_.cut_over_limit(size_, std::min(read_to, size_)))
    if (const auto removal = remove(*cut)) return removal;  // The rest at the next look.
  // The worker would be killed there (SIGXFSZ), where a full disk is but an error to it.
  if (is_at_size_limit(size_)) return make_room(read_on ? read_on() : read_to);
  if (!reserves_) return std::nullopt;
  const auto range = room_.to_reserve();
  if (!range) return std::nullopt;
  const int error = reserve(*range);
  if (error == 0) return std::nullopt;
  if (is_full(error)) return make_room(read_on ? read_on() : read_to);
  reserves_ = false;  // Not on this file system.
  spdlog::debug("log_not_reserved path=\"{}\" reason=\"{}\"", path_,
                std::generic_category().message(error));
  return std::nullopt;
}

// So that one file's reserve is not what fills the disk.
std::int64_t LogSpace::fair_reserve() const {
  constexpr std::int64_t kShares = 16;
  struct statvfs disk {};
  if (::fstatvfs(fd_.get(), &disk) != 0) return kMinReserveBytes;
  const auto free = static_cast<std::int64_t>(disk.f_bavail * disk.f_frsize);
  return std::max(kMinReserveBytes, free / kShares);
}

// As much of it as there is.
int LogSpace::reserve(LogRange range) {
  range.length = std::min(range.length, fair_reserve());
  for (;;) {
    const int error = allocate(fd_.get(), range);
    if (error == 0) room_.reserved(range);
    if (!is_full(error) || range.length / 2 < kSmallestReserveBytes) return error;
    range.length /= 2;
  }
}

std::optional<LogRemoval> LogSpace::make_room(std::int64_t read_to) {
  struct stat status {};
  if (!fd_.is_open() || ::fstat(fd_.get(), &status) != 0) return std::nullopt;
  const std::int64_t size = size_ = status.st_size;
  room_.seen(size);
  const std::string reason = is_at_size_limit(size)
                                 ? path_ + " has reached the limit of a file's size (`ulimit -f`)"
                                 : "the disk of the logs is full: " + describe_disk(fd_.get());
  if (!options_.drop_when_full) {
    if (!std::exchange(told_full_, true) && options_.on_full) options_.on_full(reason);
    return std::nullopt;
  }
  // What has been shown goes first; if there is none of that, what has not.
  auto cut = room_.cut_for_space(size, std::min(read_to, size));
  if (!cut) cut = room_.cut_for_space(size, size);
  if (!cut) return std::nullopt;
  const auto removal = remove(*cut);
  if (!removal) return std::nullopt;
  dropped_ += removal->range.length;
  if (const auto range = room_.to_reserve()) reserve(*range);  // Before somebody else has it.
  if (!std::exchange(told_full_, true))
    spdlog::warn(
        "{}: the middle of {} is dropped, so that the worker can go on writing "
        "(--log-on-full=fail ends the job instead)",
        reason, path_);
  return removal;
}

std::optional<LogRemoval> LogSpace::remove(const LogRange& cut) {
  std::optional<LogRemoval> removal;
  int error = EOPNOTSUPP;
  if (collapses_) {
    // Only if nothing was punched before: a file has either holes or none.
    if (::fallocate(fd_.get(), FALLOC_FL_COLLAPSE_RANGE, cut.offset, cut.length) == 0)
      removal = LogRemoval{cut, true};
    else if (errno != EINTR)
      collapses_ = false;
  }
  if (!removal && !collapses_ && punches_) {
    constexpr int kPunch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    error = ::fallocate(fd_.get(), kPunch, cut.offset, cut.length) == 0 ? 0 : errno;
    if (error == 0) {
      removal = LogRemoval{cut, false};
    } else if (error != EINTR) {
      punches_ = false;
      spdlog::warn("{} cannot be cut, so it grows without limit: the file system {} says: {}",
                   path_, describe_disk(fd_.get()), std::generic_category().message(error));
    }
  }
  if (!removal) return std::nullopt;
  if (removal->collapsed)
    room_.collapsed(cut);
  else
    room_.punched(cut);
  const std::string marker = removal_marker(room_.removed_bytes());
  if (::pwrite(fd_.get(), marker.data(), marker.size(), room_.marker_place().offset) < 0)
    spdlog::debug("log_not_marked path=\"{}\" reason=\"{}\"", path_,
                  std::generic_category().message(errno));
  return removal;
}

void LogSpace::release() {
  // The lease is to be had only while nobody else has the file open, so nothing can be appended
  // between the two calls below.
  struct stat status {};
  if (fd_.is_open() && reserves_ && ::fcntl(fd_.get(), F_SETLEASE, F_WRLCK) == 0 &&
      ::fstat(fd_.get(), &status) == 0 && ::ftruncate(fd_.get(), status.st_size) != 0)
    spdlog::debug("log_reserve_not_released path=\"{}\" reason=\"{}\"", path_,
                  std::generic_category().message(errno));
  fd_.reset();
}

}  // namespace muster
