#include "agent/core/worker_end.h"

#include <algorithm>

#include "agent/core/signal_name.h"

namespace muster {

std::string exit_text(const WorkerExit& exit) {
  const std::string signal = exit.killed ? signal_name(exit.status) : "";
  if (exit.killed)
    return "was killed by " + (signal.empty() ? "signal " + std::to_string(exit.status) : signal);
  return "exited with " + std::to_string(exit.status);
}

void WallClockWatch::add(std::int64_t offset_ms) {
  if (!offsets_) offsets_.emplace(offset_ms, offset_ms);
  offsets_->first = std::min(offsets_->first, offset_ms);
  offsets_->second = std::max(offsets_->second, offset_ms);
}

void WallClockWatch::add(const WallClockWatch& other) {
  if (!other.offsets_) return;
  add(other.offsets_->first);
  add(other.offsets_->second);
}

bool WorkerEnd::was_sent(int signal) const {
  return std::find(sent.begin(), sent.end(), signal) != sent.end();
}

void WorkerEnd::record_signal(int signal, bool can_outlive, std::int64_t now_ms) {
  if (!signalled_ms) signalled_ms = now_ms;
  sent.push_back(signal);
  can_outlive_signal = can_outlive_signal || can_outlive;
}

}  // namespace muster
