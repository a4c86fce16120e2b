#include "agent/io/worker_stop.h"

#include <utility>

#include <spdlog/spdlog.h>

#include "agent/core/preemption.h"
#include "agent/io/agent_lines.h"
#include "rendezvous/net/clock.h"

namespace muster {

void WorkerStop::begin_attempt() {
  lines_.begin_attempt();
  if (channel_ != nullptr) channel_->reset();
}

void WorkerStop::on_signal(int number, Supervisor::State before) {
  const bool stops = has_workers(before);
  const bool is_first = !stops || signals_++ == 0;
  if (stops && is_first && channel_ != nullptr)
    channel_->preempt(Preemption::deadline_of_notice(now(), options_.shutdown_timeout));
  log_signal(
      number,
      {.before = before, .is_first = is_first, .shutdown_timeout = options_.shutdown_timeout});
}

void WorkerStop::on_signalled(const ShimReport& report) {
  if (auto line = lines_.line_for_signal(report.pid, report.status, alive_))
    spdlog::warn("{}", std::move(*line));
}

void WorkerStop::signal_workers(const SignalWorkers& action) {
  workers_.attempt_ends();
  lines_.begin_stop();
  alive_ = static_cast<int>(workers_.running().size());
  number_ = action.number;
  const Preemption none;
  const Preemption& preemption = channel_ == nullptr ? none : channel_->preemption();
  for (const LocalRank rank : preemption.signalled_at_once(options_.local_world_size))
    signal(rank);
}

void WorkerStop::end_worker(const EndWorker& action) {
  shim_.send({.kind = ShimRequest::Kind::SignalProcess,
              .worker = action.rank.value,
              .number = action.number});
}

void WorkerStop::kill_everything() {
  workers_.attempt_ends();
  alive_ = static_cast<int>(workers_.running().size());
  shim_.send({.kind = ShimRequest::Kind::KillAll});
}

void WorkerStop::signal(LocalRank rank) {
  shim_.send({.kind = ShimRequest::Kind::Signal, .worker = rank.value, .number = number_});
}

}  // namespace muster
