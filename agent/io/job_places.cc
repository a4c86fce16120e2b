#include "agent/io/job_places.h"

#include <unistd.h>

#include <spdlog/spdlog.h>

#include "agent/io/worker_channel.h"

namespace muster {

JobPlaces JobPlaces::choose(const AgentOptions& options, std::vector<std::string>& environment) {
  JobPlaces places;
  places.run_dir_ = RunDir::choose(options);
  places.fifo_ = TimerFifo::choose(environment);
  return places;
}

std::string JobPlaces::make() {
  std::string where;
  if (const auto error = run_dir_.make(where))
    return "cannot make a directory for logs and error files in " + where + ": " + error.message() +
           " (--log-dir chooses another place)";
  if (!run_dir_.fallback().empty()) spdlog::warn("{}", run_dir_.fallback());
  open_channel();
  if (!fifo_) return {};
  if (const auto error = fifo_->make())
    return "cannot make the timers' pipe " + fifo_->path() + ": " + error.message() +
           " (TORCHELASTIC_TIMER_FILE names its place)";
  return {};
}

// Optional: workers do without.
void JobPlaces::open_channel() {
  if (run_dir_.path().empty()) return;
  const std::string path = run_dir_.path() + "/channel";
  auto listener = WorkerChannel::listen_at(path);
  if (!listener) return spdlog::debug("worker_channel_unavailable: {}", listener.error().message());
  channel_ = std::move(*listener);
  channel_path_ = path;
}

void JobPlaces::tidy(bool success) const {
  if (!channel_path_.empty()) ::unlink(channel_path_.c_str());
  if (fifo_) fifo_->remove();
  run_dir_.tidy(success);
}

void JobPlaces::tidy_for_the_dead() const {
  if (fifo_) fifo_->remove_unread();
  run_dir_.tidy(false);
}

void JobPlaces::tidy_after_dead_owners() const {
  if (fifo_) fifo_->tidy_after_dead_owners();
  run_dir_.tidy_after_dead_owners();
}

}  // namespace muster
