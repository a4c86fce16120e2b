#include "agent/io/watchdogs.h"

#include <utility>

#include <spdlog/spdlog.h>

#include "agent/posix/find_program.h"
#include "base/system/clock.h"

namespace muster {

Watchdogs::Watchdogs(boost::asio::io_context& io, WorkerTable& workers,
                     const std::vector<std::string>& environment, const TimerFifo* fifo,
                     Handlers handlers, std::function<char(pid_t)> read_state)
    : workers_(workers),
      handlers_(std::move(handlers)),
      connections_(io, workers),
      read_state_(std::move(read_state)) {
  if (fifo != nullptr)
    timers_.emplace(io, workers, *fifo,
                    [this](const FileTimer::Expired& timer) { on_expired(timer); });
  const auto timeout = uninterruptible_timeout(
      environment_value(environment, "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT").value_or(""));
  if (!timeout) return;
  states_.emplace(io, *timeout, [this] { return check(); });
  workers.observe(*this);
}

void Watchdogs::worker_started(const RunningWorker&) {
  is_watching_ = true;
  if (states_) states_->check.begin();
}

// A stuck worker can still end with success. Then the watch for the others goes on.
void Watchdogs::worker_ended(const RunningWorker&, const WorkerExit&) {
  if (states_ && is_watching_) states_->check.begin();
}

void Watchdogs::attempt_ends() {
  is_watching_ = false;
  if (states_) states_->stop();
}

bool Watchdogs::check() {
  if (!states_ || workers_.running().empty()) return false;
  std::vector<WorkerState> states;
  states.reserve(workers_.running().size());
  for (const auto& [rank, pid] : workers_.running())
    states.push_back({rank, read_state_(pid)});
  const auto stuck = states_->detector.observe(states, now());
  if (!stuck) return true;
  states_->stop();
  on_stuck(*stuck);
  return false;
}

void Watchdogs::on_stuck(const StuckWorker& stuck) {
  const std::string why =
      fmt::format("it waited in the kernel (state D) for {:.1f} s, where no signal reaches it",
                  std::chrono::duration<double>(stuck.stuck).count());
  spdlog::error("local rank {} (pid {}): {}: ending it", stuck.rank.value,
                workers_.pid_of(stuck.rank), why);
  handlers_.on_reason(stuck.rank, why);
  handlers_.on_stuck(stuck.rank);
}

// The process already has its signal. Its end is reported like any other.
void Watchdogs::on_expired(const FileTimer::Expired& timer) {
  if (timer.is_worker && timer.signal > 0)
    handlers_.on_reason(timer.rank, "its timer \"" + timer.scope + "\" ran out");
}

}  // namespace muster
