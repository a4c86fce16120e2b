#include "agent/io/worker_stop.h"

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "agent/core/preemption.h"
#include "agent/core/progress_text.h"
#include "agent/core/signal_name.h"
#include "rendezvous/net/clock.h"

namespace muster {
namespace {

/// Whether a signal in this state stops workers.
bool has_workers(Supervisor::State state) {
  using State = Supervisor::State;
  return state == State::Starting || state == State::Running || state == State::Stopping;
}

}  // namespace

void WorkerStop::begin_attempt() {
  lines_.begin_attempt();
  if (channel_ != nullptr) channel_->reset();
}

void WorkerStop::on_signal(int number, Supervisor::State before, std::optional<Instant> kill_at) {
  using State = Supervisor::State;
  // A stop for another reason may be under way, and goes on with its own deadline.
  const Duration left = before == State::Stopping && kill_at
                            ? std::max(*kill_at - now(), Duration(0))
                            : options_.shutdown_timeout;
  const bool stops = has_workers(before);
  const bool is_first = stops && signals_++ == 0;
  if (is_first && channel_ != nullptr)
    channel_->preempt(Preemption::deadline_of_notice(now(), left));
  if (before != State::Joining) spdlog::warn("Received {} death signal", number);
  if (is_first)
    spdlog::warn("{}", stopping_text(number, left));
  else if (stops)
    spdlog::warn("received {} again: killing the workers", signal_name(number));
  else if (before == State::Leaving)
    spdlog::warn("Got termination signal: {}: the other nodes are not waited for", number);
}

void WorkerStop::on_restart(const std::string& why, bool is_planned, Supervisor::State before) {
  spdlog::warn("stopping the workers to meet the other nodes again: {}", why);
  const bool run = before == Supervisor::State::Starting || before == Supervisor::State::Running;
  if (is_planned && run && channel_ != nullptr)
    channel_->preempt(Preemption::deadline_of_notice(now(), options_.shutdown_timeout));
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
