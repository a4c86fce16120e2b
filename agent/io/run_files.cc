#include "agent/io/run_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include <spdlog/spdlog.h>

#include "agent/io/worker_channel.h"
#include "rendezvous/core/limit_advice.h"

namespace muster {

RunFiles RunFiles::choose(const AgentOptions& options, std::vector<std::string>& environment) {
  RunFiles files;
  files.run_dir_ = RunDir::choose(options);
  files.fifo_ = TimerFifo::choose(environment);
  return files;
}

std::string RunFiles::create_run_dir() {
  std::string where;
  if (const auto error = run_dir_.create(where))
    return "cannot make a directory for logs and error files in " + where + ": " + error.message() +
           " (--log-dir chooses another place)" + limit_advice(error.value());
  return {};
}

std::string RunFiles::create() {
  if (std::string problem = create_run_dir(); !problem.empty()) return problem;
  if (!run_dir_.fallback().empty()) spdlog::warn("{}", run_dir_.fallback());
  open_channel();
  return create_fifo();
}

std::string RunFiles::create_fifo() {
  if (!fifo_) return {};
  if (const auto error = fifo_->create())
    return "cannot make the timers' pipe " + fifo_->path() + ": " + error.message() +
           " (TORCHELASTIC_TIMER_FILE names its place)";
  return {};
}

std::string RunFiles::restore() {
  if (!run_dir_.restore_in_log_dir())
    return run_dir_.path() +
           " is not the folder that muster has made: another user may have put it there. No "
           "further "
           "worker starts (--log-dir chooses a place where only you may rename folders)";
  if (fifo_ && fifo_->is_lost()) {
    if (std::string problem = create_fifo(); !problem.empty()) return problem;
    spdlog::warn("{} was removed while the job ran: it is made again", fifo_->path());
    restored_ = true;
  }
  if (!run_dir_.is_lost()) return {};
  const std::string lost = run_dir_.path();
  if (std::string problem = create_run_dir(); !problem.empty()) return problem;
  const std::string where = run_dir_.path() == lost ? "" : ", as " + run_dir_.path();
  spdlog::warn("{} was removed while the job ran: it is made again{}", lost, where);
  open_channel();
  restored_ = true;
  return {};
}

// The channel is optional: without it, workers cannot report progress nor get notices.
void RunFiles::open_channel() {
  if (run_dir_.path().empty()) return;
  const std::string path = run_dir_.path() + "/channel";
  auto listener = WorkerChannel::listen_at(path);
  if (!listener) return spdlog::debug("worker_channel_unavailable: {}", listener.error().message());
  channel_ = std::move(*listener);
  channel_path_ = path;
}

std::vector<OwnedFd> RunFiles::copies_of_locks() const {
  std::vector<OwnedFd> copies;
  const auto add = [&copies](const OwnedFd& lock) {
    if (!lock.is_open()) return;
    OwnedFd copy(::fcntl(lock.get(), F_DUPFD_CLOEXEC, 3));
    if (copy.is_open()) copies.push_back(std::move(copy));
  };
  add(run_dir_.lock());
  if (fifo_) add(fifo_->lock());
  return copies;
}

void RunFiles::remove(bool success) const {
  if (!channel_path_.empty()) ::unlink(channel_path_.c_str());
  if (fifo_) fifo_->remove();
  run_dir_.remove(success);
}

void RunFiles::remove_for_lost_agent() const {
  if (fifo_) fifo_->remove_unread();
  run_dir_.remove(false);
}

void RunFiles::remove_orphans() const {
  if (fifo_) fifo_->remove_orphans();
  run_dir_.remove_orphans();
}

}  // namespace muster
