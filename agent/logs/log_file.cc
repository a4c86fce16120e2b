#include "agent/logs/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <limits>
#include <sstream>
#include <system_error>
#include <utility>

#include <spdlog/spdlog.h>

#include "agent/logs/log_streams.h"
#include "base/system/same_file.h"

namespace muster {
namespace {

constexpr mode_t kLogMode = 0666;  // The umask applies, as for a file that the worker creates.

std::string megabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MB", bytes / 1e6);
  return text;
}

// "MOUNT POINT (TYPE" of the last mount of the file's device in mountinfo, see proc(5).
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

std::string reason_text(int error) {
  return std::generic_category().message(error);
}

}  // namespace

bool is_disk_full(int error) {
  return error == ENOSPC || error == EDQUOT || error == EFBIG;
}

std::string describe_disk(int fd) {
  struct statvfs disk {};
  std::string text = mount_of(fd);
  if (::fstatvfs(fd, &disk) != 0) return text + ")";
  const auto unit = static_cast<double>(disk.f_frsize);
  return text + ", " + megabytes(unit * static_cast<double>(disk.f_blocks)) + ", " +
         megabytes(unit * static_cast<double>(disk.f_bavail)) + " free)";
}

LogFile::LogFile(std::string path, Begin begin, LogFileOptions options)
    : path_(std::move(path)),
      options_(std::move(options)),
      cut_(std::make_shared<LogCut>(options_.max_bytes)) {
  open(begin);
}

// O_NONBLOCK: the open of a FIFO without a reader fails instead of blocking.
bool LogFile::open(Begin begin) {
  const int anew = begin == Begin::Truncate ? O_TRUNC : 0;
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  file_ = OwnedFd(::open(path_.c_str(), kFlags | anew, kLogMode));
  error_ = file_.is_open() ? 0 : errno;
  if (!file_.is_open()) return false;
  struct stat status {};
  regular_ = ::fstat(file_.get(), &status) == 0 && S_ISREG(status.st_mode);
  size_ = status.st_size;
  return true;
}

void LogFile::append(std::string_view bytes) {
  if (!file_.is_open() && !open(Begin::Append)) warn_once(error_);
  notice_truncation();
  if (missing_ > 0 && file_.is_open()) mark_gap();
  const std::string_view all = bytes;
  if (missing_ == 0 && file_.is_open()) write_all(bytes);
  const auto written = static_cast<std::int64_t>(all.size() - bytes.size());
  for (FollowedFile* const reader : readers_) {
    if (written > 0) reader->written(all.substr(0, all.size() - bytes.size()), size_ - written);
    if (!bytes.empty()) reader->unwritten(bytes, size_);
  }
  missing_ += static_cast<std::int64_t>(bytes.size());
  if (file_.is_open()) cut_over_limit();
}

// Writes the line about missing bytes. It is for readers of the file only: the console has shown
// these bytes, so its readers skip the line.
bool LogFile::mark_gap() {
  const std::string text = "\n[muster: " + std::to_string(missing_) +
                           " bytes are missing here: they could not be written]\n";
  std::string_view rest = text;
  const bool whole = write_all(rest);
  const auto written = static_cast<std::int64_t>(text.size() - rest.size());
  for (FollowedFile* const reader : readers_)
    if (written > 0) reader->skip({.offset = size_ - written, .length = written});
  if (whole) lost_ += std::exchange(missing_, 0);
  return whole;
}

std::string LogFile::full_text(int error) const {
  if (error == EFBIG) return path_ + " has reached the limit of a file's size (`ulimit -f`)";
  return "the disk of the logs is full: " + describe_disk(file_.get()) + ": " + reason_text(error);
}

// Removes from `bytes` the part that was written.
bool LogFile::write_all(std::string_view& bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file_.get(), bytes.data(), bytes.size());
    if (n > 0) {
      size_ += n;
      bytes.remove_prefix(static_cast<std::size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    error_ = n < 0 ? errno : ENOSPC;
    if (is_disk_full(error_) && make_room(error_)) continue;
    warn_once(error_);
    return false;
  }
  return true;
}

std::int64_t LogFile::size() const {
  struct stat status {};
  return ::fstat(file_.get(), &status) == 0 ? status.st_size : 0;
}

std::int64_t LogFile::min_reader_offset() const {
  std::int64_t offset = std::numeric_limits<std::int64_t>::max();
  for (const FollowedFile* const reader : readers_)
    offset = std::min(offset, reader->offset());
  return offset;
}

void LogFile::catch_up_readers() {
  for (FollowedFile* const reader : readers_)
    reader->read_to_end();
}

bool LogFile::has_room() const {
  return std::all_of(readers_.begin(), readers_.end(), [this](FollowedFile* reader) {
    return !reader->has_unwritten() && (missing_ == 0 || reader->output().has_room());
  });
}

// Another process may truncate the file, as logrotate does with `copytruncate`. Bytes that the
// readers have shown must not be shown again.
void LogFile::notice_truncation() {
  if (!regular_ || !file_.is_open()) return;
  const std::int64_t real_size = size();
  if (real_size < size_) {
    cut_->reset();
    for (FollowedFile* const reader : readers_)
      reader->truncated(size_, real_size);
  }
  size_ = real_size;
}

void LogFile::cut_over_limit() {
  if (!regular_ || options_.max_bytes == 0 || size_ <= options_.max_bytes) return;
  notice_truncation();
  catch_up_readers();
  if (const auto range = cut_->over_limit(size_, min_reader_offset())) remove(*range);
}

// Removes bytes that have been shown; if these are too few, also bytes that have not been shown.
bool LogFile::make_room(int error) {
  if (options_.ends_when_full) {
    if (options_.on_full && !std::exchange(warned_, true)) {
      const std::string why = full_text(error);
      // This line is needed, too: if the job has just ended by itself, no report names the disk.
      spdlog::warn("{}: some of {} is dropped, and the job ends", why, path_);
      options_.on_full(why);
    }
    return false;
  }
  if (!regular_) return false;
  notice_truncation();
  catch_up_readers();
  auto range = cut_->for_space(size_, min_reader_offset());
  if (!range) range = cut_->for_space(size_, size_);
  if (!range || !remove(*range)) return false;
  lost_ += range->length;
  if (!std::exchange(warned_, true))
    spdlog::warn(
        "{}: the middle of {} is dropped, so that its end can be written (--log-on-full=fail ends "
        "the job instead)",
        full_text(error), path_);
  return true;
}

// /proc leads to the file itself: another file may have its name by now (`mv`, logrotate's
// `create`). If /proc cannot be used, the name must still lead to this file.
OwnedFd LogFile::open_to_cut() const {
  constexpr int kFlags = O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  OwnedFd same(::open(("/proc/self/fd/" + std::to_string(file_.get())).c_str(), kFlags));
  if (same.is_open()) return same;
  OwnedFd named(::open(path_.c_str(), kFlags));
  return is_one_file(named.get(), file_.get()) ? std::move(named) : OwnedFd();
}

OwnedFd LogFile::open_handle() const {
  if (!file_.is_open()) return {};
  const std::string path = "/proc/self/fd/" + std::to_string(file_.get());
  return OwnedFd(::open(path.c_str(), O_PATH | O_CLOEXEC));
}

// Moves the tail of the file to the end of the head. Only this thread writes to the file.
bool LogFile::remove(const LogRange& range) {
  if (!cut_file_.is_open()) cut_file_ = open_to_cut();
  if (!cut_file_.is_open()) return false;
  if (!move_tail(range, size_) || ::ftruncate(cut_file_.get(), size_ - range.length) != 0) {
    spdlog::debug("log_not_cut path=\"{}\" reason=\"{}\"", path_, reason_text(errno));
    return false;
  }
  size_ -= range.length;
  cut_->removed(range);
  const std::string marker = removal_marker(cut_->removed_bytes());
  if (::pwrite(cut_file_.get(), marker.data(), marker.size(), cut_->marker_place().offset) < 0)
    spdlog::debug("log_not_marked path=\"{}\" reason=\"{}\"", path_, reason_text(errno));
  for (FollowedFile* const reader : readers_)
    reader->removed(range);
  return true;
}

bool LogFile::move_tail(const LogRange& range, std::int64_t size) const {
  std::array<char, 64 << 10> buffer;
  for (std::int64_t from = range.end(); from < size;) {
    const auto wanted = std::min<std::int64_t>(size - from, buffer.size());
    const ssize_t n =
        ::pread(cut_file_.get(), buffer.data(), static_cast<std::size_t>(wanted), from);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    const ssize_t written =
        ::pwrite(cut_file_.get(), buffer.data(), static_cast<std::size_t>(n), from - range.length);
    if (written != n) return false;  // Rare, as the write goes to blocks that exist already.
    from += n;
  }
  return true;
}

void LogFile::warn_once(int error) {
  if (std::exchange(warned_, true)) return;
  spdlog::warn("{}: some of {} is dropped, and muster tries again",
               is_disk_full(error) ? full_text(error) : reason_text(error), path_);
}

std::int64_t LogFile::finish() {
  notice_truncation();
  if (file_.is_open()) cut_over_limit();
  const std::int64_t lost = lost_ + missing_;
  if (missing_ > 0 && file_.is_open()) mark_gap();
  missing_ = lost_ = 0;
  file_.reset();
  cut_file_.reset();
  return lost;
}

}  // namespace muster
