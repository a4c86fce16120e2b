#include "agent/logs/pipe_growth.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "agent/core/pipe_size.h"
#include "base/system/owned_fd.h"

namespace muster {
namespace {

constexpr std::size_t kEnoughDescriptors = 256;

std::size_t number_in(const char* path, std::size_t otherwise) {
  std::size_t number = 0;
  std::ifstream file(path);
  return file >> number ? number : otherwise;
}

/// 0: unknown.
std::size_t bytes_of_pipe(int pipe) {
  return static_cast<std::size_t>(std::max(::fcntl(pipe, F_GETPIPE_SZ), 0));
}

bool set_size(int pipe, std::size_t bytes) {
  return ::fcntl(pipe, F_SETPIPE_SZ, static_cast<int>(bytes)) >= 0;
}

}  // namespace

std::size_t user_pipe_pages() {
  return number_in("/proc/sys/fs/pipe-user-pages-soft", 16384);  // The default of Linux 6.
}

PipeReserve::Limits PipeReserve::read_limits() {
  return {.user_pages = user_pipe_pages(),
          .has_hard_limit = number_in("/proc/sys/fs/pipe-user-pages-hard", 0) != 0,
          .pipe_bytes = number_in("/proc/sys/fs/pipe-max-size", kPipeBytesMax),
          .page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)),
          .descriptors = static_cast<std::size_t>(std::max(::sysconf(_SC_OPEN_MAX), 0L))};
}

void resize_pipe(int pipe, std::size_t bytes) {
  const std::size_t before = bytes_of_pipe(pipe);
  if (before == 0) return;
  if (bytes < before) set_size(pipe, bytes);
  // The kernel refuses only what is more than the limit, not what others need next.
  while (bytes > before && !set_size(pipe, bytes))
    bytes /= 2;
}

void PipeReserve::keep(int pipe, std::size_t wanted_bytes) {
  std::size_t bytes = bytes_of_pipe(pipe);
  // Made while other pipes had taken all pages, which are perhaps given back now.
  if (const std::size_t least = std::min(wanted_bytes, kPipeBytesUsual);
      bytes != 0 && bytes < least)
    resize_pipe(pipe, least);
  bytes = bytes_of_pipe(pipe);
  if (refused_bytes_ != 0 && bytes >= refused_bytes_) {
    bytes = std::max(refused_bytes_ / 2, kPipeBytesMin);
    set_size(pipe, bytes);
  }
  while (bytes > 0) {
    unchecked_bytes_ += bytes > kPipeBytesUsual ? bytes - kPipeBytesUsual : bytes;
    if (unchecked_bytes_ < kCheckEveryBytes) return;
    if (is_left(reserved_part(bytes))) {
      unchecked_bytes_ = 0;
      return;
    }
    if (bytes <= kPipeBytesMin) return warn();
    refused_bytes_ = bytes;  // The next pipe is checked, too.
    // Refused if more than that is in the pipe already: then the pipe stays as it is.
    if (!set_size(pipe, bytes / 2)) return;
    bytes /= 2;
  }
}

void PipeReserve::begin_attempt() {
  refused_bytes_ = 0;
  unchecked_bytes_ = kCheckEveryBytes;
}

const PipeReserve::Limits& PipeReserve::limits() {
  if (!limits_) limits_ = read_limits();
  return *limits_;
}

void PipeReserve::warn() {
  unchecked_bytes_ = 0;
  if (std::exchange(has_warned_, true)) return;
  const std::size_t user_pages = limits().user_pages;
  spdlog::warn(
      "pipe_pages_used_up limit={} effect=\"new pipes of this user have two pages, also those of "
      "other programs, which may hang\" remedy=\"raise the limit: sysctl "
      "fs.pipe-user-pages-soft={}\"",
      user_pages, 4 * user_pages);
}

bool PipeReserve::is_left(std::size_t part) {
  const Limits& known = limits();
  // With few descriptors (`ulimit -n`) none are taken from the other threads.
  if (known.user_pages == 0 || known.descriptors < kEnoughDescriptors) return true;
  // No call tells how many pages are left: takes them for a moment.
  const std::size_t piece = std::min(known.pipe_bytes, kPipeBytesMax);
  // One end of each keeps its pages.
  std::vector<OwnedFd> taken(reserve_pieces(known.user_pages, part, known.page_bytes, piece));
  for (OwnedFd& one_end : taken) {
    std::array<int, 2> fds{};
    if (::pipe2(fds.data(), O_CLOEXEC) != 0) {
      // ENFILE is also the kernel's answer to a user who is at the hard limit of pages.
      return errno == EMFILE || (errno == ENFILE && !known.has_hard_limit);
    }
    one_end = OwnedFd(fds[1]);
    ::close(fds[0]);
    if (!set_size(fds[1], piece)) return false;
  }
  return true;
}

}  // namespace muster
