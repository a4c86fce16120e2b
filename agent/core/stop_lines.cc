#include "agent/core/stop_lines.h"

#include <csignal>
#include <utility>

#include "agent/core/signal_name.h"

namespace muster {

std::optional<std::string> StopLines::line_for_signal(int pid, int signal, int alive) {
  if (signal != signal_) {
    previous_signal_ = std::exchange(signal_, signal);
    lines_ = 0;
  }
  if (lines_ > kMaxLines) return std::nullopt;
  const bool is_last = ++lines_ > kMaxLines;
  const int others = alive - kMaxLines;
  const std::string who =
      is_last ? std::to_string(others) + " more processes" : std::to_string(pid);
  if (signal == SIGKILL && previous_signal_ != 0)
    return "Unable to shutdown " + (is_last ? who : "process " + who) + " via " +
           std::to_string(previous_signal_) + ", forcefully exiting via 9";
  return "Sending " + (is_last ? who : "process " + who) + " closing signal " + signal_name(signal);
}

}  // namespace muster
