#include "agent/io/watchdogs.h"

#include <utility>

#include <spdlog/spdlog.h>

#include "agent/posix/process_scan.h"

namespace muster {

Watchdogs::Watchdogs(boost::asio::io_context& io, WorkerTable& workers,
                     const std::vector<std::string>& environment, const TimerFifo* fifo,
                     Handlers handlers)
    : workers_(workers), handlers_(std::move(handlers)) {
  if (fifo != nullptr)
    timers_.emplace(io, workers, *fifo,
                    [this](const FileTimer::Expired& timer) { on_expired(timer); });
  if (const auto timeout = uninterruptible_timeout_of(environment)) {
    states_.emplace(
        io, workers, *timeout, [this](const StuckWorker& stuck) { on_stuck(stuck); },
        process_state);
    workers.observe(*this);
  }
}

void Watchdogs::worker_started(const RunningWorker&) {
  states_->begin();
}

void Watchdogs::attempt_ends() {
  states_->stop();
}

void Watchdogs::on_stuck(const StuckWorker& stuck) {
  const std::string why = stuck_text(stuck.stuck);
  spdlog::error("local rank {} (pid {}): {}: ending it", stuck.rank.value,
                workers_.pid_of(stuck.rank), why);
  handlers_.on_reason(stuck.rank, why);
  handlers_.on_stuck(stuck.rank);
}

// The process has its signal already; its end comes as any other.
void Watchdogs::on_expired(const FileTimer::Expired& timer) {
  if (timer.is_worker && timer.signal > 0)
    handlers_.on_reason(timer.rank, "its timer \"" + timer.scope + "\" ran out");
}

}  // namespace muster
