#include "agent/io/run_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <spdlog/spdlog.h>

#include "agent/io/worker_channel.h"
#include "base/limit_advice.h"

namespace muster {

using boost::system::error_code;

RunFiles RunFiles::choose(const AgentOptions& options,
                          const std::vector<std::string>& environment) {
  RunFiles files;
  files.run_dir_ = RunDir::choose(options);
  files.fifo_ = TimerFifo::choose(environment);
  files.channel_folder_ = TemporaryFolder::choose(TemporaryFolder::Content::Small, own_variable);
  return files;
}

std::string RunFiles::create_run_dir() {
  std::string where;
  const error_code error = run_dir_.create(where);
  if (!error) return {};
  std::string problem =
      "cannot make a directory for logs and error files in " + where + ": " + error.message();
  if (run_dir_.is_needed())
    return problem + " (--log-dir chooses another place)" + limit_advice(error.value());
  spdlog::warn("{}: the report of a failure will lack what the worker itself says", problem);
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
  std::string where;
  if (const error_code error = fifo_->create(where))
    return "cannot make the timers' pipe " + where + ": " + error.message() +
           " (TORCHELASTIC_TIMER_FILE names its place)";
  if (!fifo_->fallback().empty()) spdlog::warn("{}", fifo_->fallback());
  return {};
}

std::string RunFiles::restore() {
  if (!run_dir_.restore_in_log_dir())
    return run_dir_.path() +
           " is not the folder that muster has made: another user may have put it there. No "
           "further "
           "worker starts (--log-dir chooses a place where only you may rename folders)";
  if (fifo_ && fifo_->is_lost()) {
    const std::string lost = fifo_->path();
    if (std::string problem = create_fifo(); !problem.empty()) return problem;
    const std::string where = fifo_->path() == lost ? "" : ", as " + fifo_->path();
    spdlog::warn("{} was removed while the job ran: it is made again{}", lost, where);
    restored_ = true;
  }
  if (run_dir_.is_lost()) {
    const std::string lost = run_dir_.path();
    if (std::string problem = create_run_dir(); !problem.empty()) return problem;
    const std::string where = run_dir_.path() == lost ? "" : ", as " + run_dir_.path();
    spdlog::warn("{} was removed while the job ran: it is made again{}", lost, where);
  }
  // A worker that is still there keeps its connection. So do not those of the next attempt.
  if (!channel_path_.empty() && ::access(channel_path_.c_str(), F_OK) != 0 &&
      (errno == ENOENT || errno == ENOTDIR)) {
    open_channel();
    restored_ = true;
  }
  return {};
}

// The run directory may be on a file system without sockets, or its path too long for one.
void RunFiles::open_channel() {
  const std::string& folder_of_logs = run_dir_.socket_folder();
  if (!folder_of_logs.empty() && !listen_in(folder_of_logs)) return;
  const error_code error =
      channel_folder_.create([this](const std::string& folder) { return listen_in(folder); });
  if (!error) return;
  channel_path_.clear();
  spdlog::warn(
      "worker_channel_unavailable reason=\"{}: {}\" effect=\"workers can report no progress, and "
      "get "
      "no notice before they are stopped\"",
      channel_folder_.places(), error.message());
}

error_code RunFiles::listen_in(const std::string& folder) {
  std::string path = folder + "/channel";
  auto listener = WorkerChannel::listen_at(path);
  if (!listener) return listener.error();
  channel_ = std::move(*listener);
  channel_path_ = std::move(path);
  return {};
}

std::vector<OwnedFd> RunFiles::copies_of_locks() const {
  std::vector<OwnedFd> copies;
  const auto add = [&copies](const OwnedFd& lock) {
    if (!lock.is_open()) return;
    OwnedFd copy(::fcntl(lock.get(), F_DUPFD_CLOEXEC, 3));
    if (copy.is_open()) copies.push_back(std::move(copy));
  };
  add(run_dir_.lock());
  add(channel_folder_.lock());
  if (fifo_) add(fifo_->lock());
  return copies;
}

void RunFiles::remove(bool success) const {
  if (!channel_path_.empty()) ::unlink(channel_path_.c_str());
  if (!channel_folder_.path().empty()) channel_folder_.remove(false);
  if (fifo_) fifo_->remove();
  run_dir_.remove(success);
}

void RunFiles::remove_for_lost_agent() const {
  if (fifo_) fifo_->remove_unread();
  channel_folder_.remove(false);
  run_dir_.remove(false);
}

void RunFiles::remove_orphans() const {
  if (fifo_) fifo_->remove_orphans();
  channel_folder_.remove_orphans();
  run_dir_.remove_orphans();
}

}  // namespace muster
