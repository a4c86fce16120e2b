#include "agent/io/state_watch.h"

#include <chrono>
#include <cstdio>
#include <string_view>
#include <utility>

#include "rendezvous/net/clock.h"

namespace muster {

std::optional<Duration> uninterruptible_timeout_of(const std::vector<std::string>& environment) {
  constexpr std::string_view kName = "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT=";
  for (const std::string& entry : environment)
    if (entry.starts_with(kName))
      return uninterruptible_timeout(std::string_view(entry).substr(kName.size()));
  return std::nullopt;
}

StateWatch::StateWatch(boost::asio::io_context& io, const WorkerTable& workers, Duration timeout,
                       OnStuck on_stuck, ReadState read_state)
    : workers_(workers),
      detector_(timeout),
      on_stuck_(std::move(on_stuck)),
      read_state_(std::move(read_state)),
      look_(io, detector_.interval(), [this] { return look(); }) {}

void StateWatch::stop() {
  detector_.reset();
  look_.stop();
}

bool StateWatch::look() {
  if (workers_.running().empty()) return false;
  std::vector<WorkerState> states;
  states.reserve(workers_.running().size());
  for (const auto& [rank, pid] : workers_.running())
    states.push_back({rank, read_state_(pid)});
  const auto stuck = detector_.observe(states, now());
  if (!stuck) return true;
  stop();
  on_stuck_(*stuck);
  return false;
}

std::string stuck_text(Duration stuck) {
  char text[96];
  std::snprintf(text, sizeof text,
                "it waited in the kernel (state D) for %.1f s, where no signal reaches it",
                std::chrono::duration<double>(stuck).count());
  return text;
}

}  // namespace muster
