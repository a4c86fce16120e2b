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

StateWatch::StateWatch(boost::asio::io_context& io, Duration timeout, OnStuck on_stuck,
                       ReadState read_state)
    : timer_(io),
      detector_(timeout),
      on_stuck_(std::move(on_stuck)),
      read_state_(std::move(read_state)) {}

void StateWatch::started(LocalRank rank, pid_t pid) {
  workers_[rank] = pid;
  if (!armed_) arm();
}

void StateWatch::ended(LocalRank rank) {
  workers_.erase(rank);
}

void StateWatch::reset() {
  workers_.clear();
  detector_.reset();
  timer_.cancel();
  armed_ = false;
}

void StateWatch::arm() {
  armed_ = true;
  timer_.expires_after(detector_.interval());
  timer_.async_wait([this](boost::system::error_code ec) {
    if (!ec) look();
  });
}

void StateWatch::look() {
  armed_ = false;
  if (workers_.empty()) return;
  std::vector<WorkerState> states;
  states.reserve(workers_.size());
  for (const auto& [rank, pid] : workers_)
    states.push_back({rank, read_state_(pid)});
  const auto stuck = detector_.observe(states, now());
  if (!stuck) return arm();
  reset();
  on_stuck_(*stuck);
}

std::string stuck_text(Duration stuck) {
  char text[96];
  std::snprintf(text, sizeof text,
                "it waited in the kernel (state D) for %.1f s, where no signal reaches it",
                std::chrono::duration<double>(stuck).count());
  return text;
}

}  // namespace muster
