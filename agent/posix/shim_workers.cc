#include "agent/posix/shim_workers.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "agent/posix/process_scan.h"
#include "agent/posix/shim_reports.h"
#include "agent/posix/start_worker.h"
#include "base/system/clock.h"
#include "base/system/pseudo_terminal.h"

namespace muster {

ShimWorkers::ShimWorkers(Context context) : context_(std::move(context)) {
  if (!context_.warm) return;
  warm_.emplace(WarmStarts::Context{
      .setup = *context_.warm,
      .workers = context_.setup,
      .cgroup = context_.cgroup,
      .outbox = context_.outbox,
      .watch = context_.watch,
      .unwatch = context_.unwatch,
      .start_cold = [this](const ShimRequest& request,
                           std::vector<OwnedFd> fds) { start_cold(request, std::move(fds)); },
      .adopt = [this](WarmWorker started) { adopt(std::move(started)); },
      .job_is_stopped = [this] { return job_is_stopped_; }});
}

void ShimWorkers::start(const ShimRequest& request, std::vector<OwnedFd> fds) {
  records_.record_request(request.worker, {request.number, request.attempt});
  if (warm_) return warm_->start(request, std::move(fds));
  start_cold(request, std::move(fds));
}

/// A fork of the zygote runs the script.
void ShimWorkers::adopt(WarmWorker started) {
  const pid_t pid = started.pid;
  sessions_.insert(pid);
  ShimWorker& worker = workers_[pid] = ShimWorker{.number = started.number,
                                                  .pidfd = std::move(started.pidfd),
                                                  .readers = std::move(started.readers)};
  report_start(pid, worker);
}

void ShimWorkers::start_cold(const ShimRequest& request, std::vector<OwnedFd> fds) {
  BegunWorker begun = begin_worker(request, std::move(fds), context_.setup, context_.cgroup.open());
  BegunSpawn& child = begun.spawn;
  if (child.error != 0)
    return context_.outbox.add(start_failed(request.worker, {child.error, child.step}));
  starting_[child.status.get()] = child.pid;
  sessions_.insert(child.pid);
  context_.watch(child.status.get());
  workers_[child.pid] = ShimWorker{.number = request.worker,
                                   .pidfd = std::move(child.pidfd),
                                   .status = std::move(child.status),
                                   .memory = std::move(child.memory),
                                   .readers = std::move(begun.readers)};
}

void ShimWorkers::finish_starts() {
  for (auto& [pid, worker] : workers_)
    if (worker.status.is_open()) finish_start(pid, worker);
}

bool ShimWorkers::on_status(int fd) {
  if (warm_ && warm_->on_readable(fd)) return true;
  const auto start = starting_.find(fd);
  if (start == starting_.end()) return false;
  const auto worker = workers_.find(start->second);
  if (worker != workers_.end()) finish_start(worker->first, worker->second);
  return true;
}

/// Reports a worker's start, or its failure, as soon as the child has said which it is.
void ShimWorkers::finish_start(pid_t pid, ShimWorker& worker) {
  const std::optional<SpawnResult> result = spawn_result(worker.status.get());
  if (!result) return;
  starting_.erase(worker.status.get());
  context_.unwatch(worker.status.get());
  worker.status.reset();
  worker.has_failed = result->error != 0;
  if (worker.has_failed) return context_.outbox.add(start_failed(worker.number, *result));
  worker.memory.reset();
  report_start(pid, worker);
  if (worker.signal_after_start != 0)
    signal_worker(pid, worker, worker.signal_after_start, To::Group);
}

void ShimWorkers::report_start(pid_t pid, ShimWorker& worker) {
  if (job_is_stopped_) ::kill(-pid, SIGSTOP);  // A restart may begin while the job is stopped.
  const ShimReport report = started(worker.number, pid);
  records_.record_start(report);
  context_.watch(worker.pidfd.get());
  context_.outbox.add(report);
}

std::optional<Duration> ShimWorkers::check_zygote(Instant now) {
  if (!warm_) return std::nullopt;
  warm_->on_time(now);
  const std::optional<Instant> deadline = warm_->next_deadline();
  return deadline ? std::optional(*deadline - now) : std::nullopt;
}

void ShimWorkers::stop_zygote() {
  if (warm_) warm_->stop();
}

void ShimWorkers::signal(int number, Duration until_group, std::optional<int> only) {
  if (warm_) warm_->abort();
  for (auto& [pid, worker] : workers_) {
    if (only && worker.number != *only) continue;
    const bool spares = spare_group(pid, worker, number, until_group);
    signal_worker(pid, worker, number, spares ? To::Process : To::Group);
  }
}

/// Whether the signal is for the worker's process alone. A further signal does not give the rest of
/// the group more time than it had.
bool ShimWorkers::spare_group(pid_t pid, ShimWorker& worker, int number, Duration until_group) {
  std::optional<SparedGroup> before = std::exchange(worker.spared_group, std::nullopt);
  if (until_group <= Duration{} || worker.status.is_open() || worker.has_failed) return false;
  if (!handles_signal(pid, number)) return false;
  if (before)
    before->number = number;
  else
    before = SparedGroup{.number = number, .limit = until_group, .wait = WatchedWait(now())};
  worker.spared_group = before;
  return true;
}

void ShimWorkers::signal_spared_groups(Instant now) {
  for (auto& [pid, worker] : workers_) {
    if (!worker.spared_group) continue;
    if (worker.spared_group->wait.advance(now) < worker.spared_group->limit) continue;
    // The worker still handles its own signal, and a second one might mean something else to it.
    for (const Process& process : all_processes())
      if (process.session == pid && process.pid != pid && ::getpgid(process.pid) == pid)
        muster::signal_process(process, worker.spared_group->number);
    worker.spared_group.reset();
  }
}

std::optional<Duration> ShimWorkers::until_spared_check() const {
  std::optional<Duration> first;
  for (const auto& [pid, worker] : workers_) {
    if (!worker.spared_group) continue;
    const Duration wait = worker.spared_group->wait.until_next_check(worker.spared_group->limit);
    first = std::min(first.value_or(wait), wait);
  }
  return first;
}

void ShimWorkers::before_reap(pid_t pid) {
  const auto found = workers_.find(pid);
  if (found == workers_.end()) return;
  if (const auto& spared = found->second.spared_group) ::kill(-pid, spared->number);
}

void ShimWorkers::kill_processes() {
  if (warm_) warm_->abort();
  for (auto& [pid, worker] : workers_)
    signal_worker(pid, worker, SIGKILL, To::Process);
}

void ShimWorkers::signal_worker(pid_t pid, ShimWorker& worker, int number, To to) {
  if (worker.status.is_open()) {  // The child does not run its program yet: the signal waits.
    worker.signal_after_start = number;
    if (number == SIGKILL) ::kill(pid, SIGKILL);
    return;
  }
  if (worker.has_failed) return;
  const ShimReport report = worker_signalled(worker.number, pid, number, can_outlive(pid, number));
  // After can_outlive(), which reads /proc of the living process.
  ::kill(to == To::Group ? -pid : pid, number);
  records_.record_signal(report);
  context_.outbox.add(report);
}

void ShimWorkers::signal_process(int number_of_worker, int signal) {
  for (const auto& [pid, worker] : workers_)
    if (worker.number == number_of_worker && !worker.status.is_open())
      ::kill(pid, signal);  // Not reaped yet: the pid is still its own.
}

int ShimWorkers::forward(int number) {
  int reached = 0;
  for (const auto& [pid, worker] : workers_) {
    if (worker.status.is_open() || worker.has_failed) continue;
    if (can_outlive(pid, number)) {
      ::kill(pid, number);  // Not reaped yet: the pid is still its own.
      ++reached;
      continue;
    }
    // A shell, for example, that has started the training: the signal would end it alone.
    bool has_reached = false;
    for (const Process& process : descendants(pid, {}))
      if (process.session == pid && can_outlive(process.pid, number))
        has_reached = muster::signal_process(process, number) || has_reached;
    if (has_reached) ++reached;
  }
  return reached;
}

void ShimWorkers::signal_groups_unreported(int number) {
  // A child that does not run its program yet may not lead a group yet.
  for (const auto& [pid, worker] : workers_)
    ::kill(worker.status.is_open() ? pid : -pid, number);
}

void ShimWorkers::resize_terminals() {
  for (const auto& [pid, worker] : workers_)
    for (const OutputReader& reader : worker.readers)
      copy_terminal_size(STDERR_FILENO, reader.fd.get());
}

void ShimWorkers::stop_or_continue(bool stops) {
  job_is_stopped_ = stops;
  signal_groups_unreported(stops ? SIGSTOP : SIGCONT);
}

bool ShimWorkers::on_end(const siginfo_t& info, std::vector<OutputReader>& readers) {
  const auto found = workers_.find(info.si_pid);
  if (found == workers_.end()) return false;
  ShimWorker& worker = found->second;
  if (worker.status.is_open()) finish_start(info.si_pid, worker);
  if (!worker.has_failed) {  // Else StartFailed is reported.
    const ShimReport report = exited(worker.number, info);
    context_.outbox.add(report);
    records_.record_end(report);
  }
  readers = std::move(worker.readers);
  // The status may still be open: another process can hold its other end.
  starting_.erase(worker.status.get());
  if (worker.status.is_open()) context_.unwatch(worker.status.get());
  context_.unwatch(worker.pidfd.get());
  workers_.erase(found);
  return true;
}

std::vector<OutputReader> ShimWorkers::take_readers() {
  std::vector<OutputReader> all;
  for (auto& [pid, worker] : workers_) {
    std::vector<OutputReader> readers = std::exchange(worker.readers, {});
    std::move(readers.begin(), readers.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace muster
