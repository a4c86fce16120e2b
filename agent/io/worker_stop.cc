#include "agent/io/worker_stop.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "agent/core/preemption.h"
#include "agent/core/progress_text.h"
#include "agent/core/signal_name.h"
#include "agent/posix/bounded_read.h"
#include "agent/posix/process_scan.h"
#include "agent/posix/shim_reports.h"
#include "base/printable_text.h"
#include "base/system/clock.h"

namespace muster {
namespace {

constexpr std::size_t kCommandBytesMax = 4096;  // The most that is read of a command.
constexpr std::size_t kCommandBytesShown = 100;
constexpr std::chrono::milliseconds kReadLimit{200};  // For one process (bounded_read.h).

/// Whether a signal in this state stops workers.
bool has_workers(Supervisor::State state) {
  using State = Supervisor::State;
  return state == State::Starting || state == State::Running || state == State::Due ||
         state == State::Stopping;
}

bool runs_workers(Supervisor::State state) {
  return state == Supervisor::State::Starting || state == Supervisor::State::Running;
}

}  // namespace

void WorkerStop::begin_attempt() {
  lines_.begin_attempt();
  leftovers_.clear();
  stop_notice_.reset();
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
  stop_notice_.reset();
  if (is_first && channel_ != nullptr)
    channel_->preempt({.deadline = Preemption::deadline_of_notice(now(), left),
                       .reason = signal_name(number),
                       .follow = AfterNotice::Stop});
  if (is_first)
    spdlog::warn("{}", stopping_text(number, left));
  else if (stops)
    spdlog::warn("{} again: killing the workers", death_signal_text(number));
  else if (before == State::Leaving)
    spdlog::warn("{}: the other nodes are not waited for", death_signal_text(number));
  else if (before != State::Joining)
    spdlog::warn("{}", death_signal_text(number));
}

void WorkerStop::on_restart(const std::string& why, bool is_planned, Supervisor::State before) {
  spdlog::warn("stopping the workers to meet the other nodes again: {}", why);
  if (is_planned && runs_workers(before))
    stop_notice_ = {.reason = why, .doomed = false, .follow = AfterNotice::Restart};
}

void WorkerStop::on_preempted(const std::string& why, Supervisor::State before) {
  if (!runs_workers(before)) return;
  spdlog::warn("the job stops for a notice: {}", why);
  stop_notice_ = {.reason = why, .follow = AfterNotice::Stop};
}

void WorkerStop::notify_of_stop() {
  auto notice = std::exchange(stop_notice_, std::nullopt);
  if (!notice || channel_ == nullptr) return;
  notice->deadline = Preemption::deadline_of_notice(now(), options_.shutdown_timeout);
  channel_->preempt(std::move(*notice));
}

void WorkerStop::on_signalled(const ShimReport& report) {
  if (auto line = lines_.line_for_signal(report.pid, report.status, alive_))
    spdlog::warn("{}", std::move(*line));
}

void WorkerStop::signal_workers(const SignalWorkers& action, std::optional<Instant> kill_at) {
  notify_of_stop();
  workers_.attempt_ends();
  lines_.begin_stop();
  alive_ = static_cast<int>(workers_.running().size());
  number_ = action.number;
  const Duration until_group = options_.signal_to_leader && kill_at
                                   ? own_share(std::max(*kill_at - now(), Duration{}))
                                   : Duration{};
  const Preemption none;
  const Preemption& preemption = channel_ == nullptr ? none : channel_->preemption();
  for (const LocalRank rank : preemption.signalled_at_once(options_.local_world_size))
    signal(rank, until_group);
}

void WorkerStop::end_worker(const EndWorker& action) {
  shim_.send({.kind = ShimRequest::Kind::SignalProcess,
              .worker = action.rank.value,
              .number = action.number});
}

void WorkerStop::kill_everything(const KillEverything& action) {
  using Milliseconds = std::chrono::milliseconds;
  workers_.attempt_ends();
  alive_ = static_cast<int>(workers_.running().size());
  shim_.send(
      {.kind = ShimRequest::Kind::KillAll,
       .until_sigterm_ms = std::chrono::ceil<Milliseconds>(action.times.until_sigterm).count(),
       .until_sigkill_ms = std::chrono::ceil<Milliseconds>(action.times.until_sigkill).count()});
}

void WorkerStop::on_leftovers(const ShimReport& report) {
  std::vector<pid_t> pids;
  for (const LeftProcess& process : report.left)
    if (process.pid != 0 && !leftovers_.contains(process.pid)) pids.push_back(process.pid);
  const auto read = [](pid_t pid) {
    std::string words =
        read_proc_file(("/proc/" + std::to_string(pid) + "/cmdline").c_str(), kCommandBytesMax);
    while (!words.empty() && words.back() == '\0')
      words.pop_back();
    std::replace(words.begin(), words.end(), '\0', ' ');
    return words;
  };
  // A process that has ended in between has no command any more.
  for (const auto& [pid, command] : read_each_in_time(pids, kReadLimit, read))
    if (!command.empty()) leftovers_[pid] = printable_text(command, kCommandBytesShown);
  spdlog::warn("{}", text_about_leftovers(report, leftovers_));
}

void WorkerStop::on_forwarded(const ShimReport& report) {
  spdlog::warn("{}", forwarded_text(report.status, report.count));
}

void WorkerStop::signal(LocalRank rank, Duration until_group) {
  shim_.send({.kind = ShimRequest::Kind::Signal,
              .worker = rank.value,
              .number = number_,
              .until_group_ms = std::chrono::ceil<std::chrono::milliseconds>(until_group).count()});
}

}  // namespace muster
