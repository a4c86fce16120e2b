#include "agent/logs/log_consoles.h"

#include <sys/epoll.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace muster {
namespace {

constexpr Duration kRetryInterval = std::chrono::milliseconds(10);  // Without epoll.
constexpr Duration kFailingInterval = std::chrono::milliseconds(100);

}  // namespace

LogConsoles::LogConsoles(int stdout_fd, int stderr_fd) {
  outputs_.reserve(2);
  outputs_.push_back(std::make_unique<Output>(stdout_fd));
  if (!is_one_console(stdout_fd, stderr_fd))
    outputs_.push_back(std::make_unique<Output>(stderr_fd));
}

int LogConsoles::open_error() const {
  for (const auto& output : outputs_)
    if (const int error = output->console.open_error()) return error;
  return 0;
}

LogOutput& LogConsoles::of(LogStream stream) {
  return stream == LogStream::Out ? *outputs_.front() : *outputs_.back();
}

const LogOutput& LogConsoles::of(LogStream stream) const {
  return stream == LogStream::Out ? *outputs_.front() : *outputs_.back();
}

void LogConsoles::flush() {
  for (const auto& output : outputs_)
    output->console.flush();
}

bool LogConsoles::any_is_full() const {
  return std::any_of(outputs_.begin(), outputs_.end(),
                     [](const auto& output) { return !output->has_room(); });
}

bool LogConsoles::all_shown() const {
  return std::all_of(outputs_.begin(), outputs_.end(),
                     [](const auto& output) { return output->console.unwritten_bytes() == 0; });
}

std::size_t LogConsoles::lost_bytes() const {
  std::size_t lost = 0;
  for (const auto& output : outputs_)
    lost += output->console.lost_bytes();
  return lost;
}

void LogConsoles::give_up_unwritten() {
  for (const auto& output : outputs_)
    if (output->console.unwritten_bytes() > 0) output->console.give_up();
}

void LogConsoles::give_up_failing() {
  for (const auto& output : outputs_)
    if (output->console.is_failing()) output->console.give_up();
}

std::vector<std::string> LogConsoles::take_losses() {
  std::vector<std::string> lines;
  for (const auto& output : outputs_) {
    const std::size_t lost = output->console.lost_bytes();
    if (lost == std::exchange(output->reported_bytes, lost)) continue;
    const char* const name = output != outputs_.front() ? "stderr"
                             : outputs_.size() > 1      ? "stdout"
                                                        : "stdout and stderr";
    lines.push_back("[muster: " + std::to_string(lost) + " bytes could not be shown on " + name +
                    "]\n");
  }
  return lines;
}

void LogConsoles::update_interests(InterestSet& set, std::uint64_t first_id) {
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    Output& output = *outputs_[i];
    if (!output.console.fd_is_open() || !output.can_wait) continue;
    // epoll reports a failing console as ready all the time, so a timer starts the next try.
    const bool wanted = output.console.unwritten_bytes() > 0 && !output.console.is_failing();
    output.can_wait =
        set.set(output.console.fd(), first_id + i, output.interest, wanted ? EPOLLOUT : 0U);
  }
}

Instant LogConsoles::next_flush(Instant now, Instant next) const {
  for (const auto& output : outputs_) {
    const LogConsole& console = output->console;
    if (console.unwritten_bytes() == 0) continue;
    if (console.is_failing()) next = std::min(next, now + kFailingInterval);
    if (!output->can_wait) next = std::min(next, now + kRetryInterval);
  }
  return next;
}

}  // namespace muster
