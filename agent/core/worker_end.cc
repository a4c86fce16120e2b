#include "agent/core/worker_end.h"

#include <algorithm>

#include "agent/core/signal_name.h"

namespace muster {

std::string exit_text(const WorkerExit& exit) {
  if (exit.killed) return "was killed by " + signal_name(exit.status);
  return "exited with " + std::to_string(exit.status);
}

bool WorkerEnd::was_sent(int signal) const {
  return std::find(sent.begin(), sent.end(), signal) != sent.end();
}

void WorkerEnd::told(int signal, bool can_outlive, std::int64_t now_ms) {
  if (!signalled_ms) signalled_ms = now_ms;
  sent.push_back(signal);
  can_outlive_signal = can_outlive_signal || can_outlive;
}

}  // namespace muster
