#include "agent/io/watchdogs.h"

#include <utility>

#include <spdlog/spdlog.h>

#include "agent/posix/process_scan.h"

namespace muster {

Watchdogs::Watchdogs(boost::asio::io_context& io, const std::vector<std::string>& environment,
                     const TimerFifo* fifo, Handlers handlers)
    : handlers_(std::move(handlers)) {
  if (fifo != nullptr)
    timers_.emplace(io, *fifo, [this](const FileTimer::Expired& timer) { on_expired(timer); });
  if (const auto timeout = uninterruptible_timeout_of(environment))
    states_.emplace(
        io, *timeout, [this](const StuckWorker& stuck) { on_stuck(stuck); }, process_state);
}

void Watchdogs::attempt_begins() {
  workers_.clear();
  if (timers_) timers_->reset();
  if (states_) states_->reset();
}

void Watchdogs::worker_started(LocalRank rank, pid_t pid) {
  workers_[rank] = pid;
  if (timers_) timers_->started(rank, pid);
  if (states_) states_->started(rank, pid);
}

void Watchdogs::worker_ended(LocalRank rank) {
  workers_.erase(rank);
  if (timers_) timers_->ended(rank);
  if (states_) states_->ended(rank);
}

void Watchdogs::attempt_ends() {
  if (states_) states_->reset();
}

void Watchdogs::on_stuck(const StuckWorker& stuck) {
  const std::string why = stuck_text(stuck.stuck);
  spdlog::error("local rank {} (pid {}): {}: ending it", stuck.rank.value, workers_[stuck.rank],
                why);
  handlers_.on_reason(stuck.rank, why);
  handlers_.on_stuck(stuck.rank);
}

// The process has its signal already; its end comes as any other.
void Watchdogs::on_expired(const FileTimer::Expired& timer) {
  if (timer.is_worker && timer.signal > 0)
    handlers_.on_reason(timer.rank, "its timer \"" + timer.scope + "\" ran out");
}

}  // namespace muster
