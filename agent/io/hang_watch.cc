#include "agent/io/hang_watch.h"

#include <utility>

#include "agent/posix/process_activity.h"
#include "rendezvous/net/clock.h"

namespace muster {

HangWatch::HangWatch(boost::asio::io_context& io, Duration timeout, OnHang on_hang)
    : timer_(io), detector_(timeout), on_hang_(std::move(on_hang)) {}

void HangWatch::started(LocalRank rank, pid_t pid) {
  workers_[rank] = pid;
  if (!armed_) arm();
}

void HangWatch::ended(LocalRank rank) {
  workers_.erase(rank);
}

void HangWatch::reset() {
  workers_.clear();
  detector_.reset();
  timer_.cancel();
  armed_ = false;
}

void HangWatch::arm() {
  armed_ = true;
  timer_.expires_after(detector_.interval());
  timer_.async_wait([this](boost::system::error_code ec) {
    if (!ec) look();
  });
}

void HangWatch::look() {
  armed_ = false;
  if (workers_.empty()) return;
  std::vector<pid_t> leaders;
  leaders.reserve(workers_.size());
  for (const auto& [rank, pid] : workers_)
    leaders.push_back(pid);
  const std::vector<FamilyActivity> activities = family_activity(leaders);
  std::vector<WorkerActivity> samples;
  for (const auto& [rank, pid] : workers_) {
    const FamilyActivity& activity = activities[samples.size()];
    samples.push_back({rank, activity.cpu, activity.bytes_written, activity.stopped});
  }
  std::vector<IdleWorker> idle = detector_.observe(samples, now());
  if (idle.empty()) return arm();
  reset();
  on_hang_(std::move(idle));
}

}  // namespace muster
