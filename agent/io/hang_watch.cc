#include "agent/io/hang_watch.h"

#include <utility>

#include "agent/posix/process_activity.h"
#include "rendezvous/net/clock.h"

namespace muster {

HangWatch::HangWatch(boost::asio::io_context& io, const WorkerTable& workers, Duration timeout,
                     OnHang on_hang)
    : workers_(workers),
      detector_(timeout),
      on_hang_(std::move(on_hang)),
      look_(io, detector_.interval(), [this] { return look(); }) {}

void HangWatch::stop() {
  detector_.reset();
  last_.clear();
  look_.stop();
}

bool HangWatch::look() {
  const auto& running = workers_.running();
  if (running.empty()) return false;
  std::vector<pid_t> leaders;
  leaders.reserve(running.size());
  for (const auto& [rank, pid] : running)
    leaders.push_back(pid);
  const std::vector<FamilyActivity> activities = family_activity(leaders);
  std::vector<WorkerActivity> samples;
  for (const auto& [rank, pid] : running) {
    const FamilyActivity& activity = activities[samples.size()];
    WorkerActivity sample{rank, activity.cpu, activity.bytes_written, activity.stopped};
    // A process that cannot be read waits for storage that hangs, or the machine is very busy. A
    // sum without it would be lower, and the next one would look like work.
    if (const auto known = last_.find(rank); !activity.complete && known != last_.end())
      sample = known->second;
    last_.insert_or_assign(rank, sample);
    samples.push_back(sample);
  }
  std::vector<IdleWorker> idle = detector_.observe(samples, now());
  if (idle.empty()) return true;
  stop();
  on_hang_(std::move(idle));
  return false;
}

}  // namespace muster
