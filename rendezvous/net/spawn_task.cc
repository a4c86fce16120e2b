#include "rendezvous/net/spawn_task.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string>

namespace muster {
namespace {

constexpr int kReaderLimitMs = 1000;      // The reader of stderr may be stuck.
constexpr std::size_t kMostBytes = 4096;  // PIPE_BUF: a pipe with room takes these bytes at once.

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "not a std::exception";
  }
}

}  // namespace

void end_after_failed_task(const char* name, const std::exception_ptr& error) {
  std::string line = std::string("task_failed task=") + name + " error=\"" + text_of(error);
  line.resize(std::min(line.size(), kMostBytes - 2));
  line += "\"\n";
  pollfd room{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&room, 1, kReaderLimitMs) == 1) [[maybe_unused]]
    const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  std::abort();
}

}  // namespace muster
