#include "agent/posix/rescue_output.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "agent/posix/write_all.h"

namespace muster {
namespace {

constexpr std::size_t kBytesAtOnce = 64 << 10;

/// False if no process holds the other end any more.
bool copy_what_is_there(int pipe, int file) {
  static std::array<char, kBytesAtOnce> buffer;
  for (;;) {
    const ssize_t n = ::read(pipe, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    if (n == 0) return false;
    [[maybe_unused]] const auto error =
        write_all(file, {buffer.data(), static_cast<std::size_t>(n)});
  }
}

void copy_all(const std::vector<OutputReader>& readers) {
  std::vector<pollfd> pipes;
  std::vector<int> files;
  for (const OutputReader& reader : readers) {
    pipes.push_back({reader.fd.get(), POLLIN, 0});
    files.push_back(::open(reader.file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  }
  for (std::size_t open = pipes.size(); open > 0;) {
    if (::poll(pipes.data(), pipes.size(), -1) < 0 && errno != EINTR) return;
    for (std::size_t i = 0; i < pipes.size(); ++i) {
      if (pipes[i].fd < 0 || pipes[i].revents == 0 || copy_what_is_there(pipes[i].fd, files[i]))
        continue;
      pipes[i].fd = -1;  // poll() ignores this entry from now on.
      --open;
    }
  }
}

}  // namespace

void OutputRescue::add(std::vector<OutputReader> readers) {
  if (begun_) return;
  for (OutputReader& reader : readers)
    readers_.push_back(std::move(reader));
}

void OutputRescue::begin() {
  if (std::exchange(begun_, true) || readers_.empty()) return;
  const pid_t parent = ::getpid();
  process_ = ::fork();
  if (process_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() == parent) copy_all(readers_);
    ::_exit(0);
  }
  readers_.clear();
}

bool OutputRescue::handle_child_end(pid_t child) {
  if (child != process_) return false;
  process_ = -1;
  return true;
}

}  // namespace muster
