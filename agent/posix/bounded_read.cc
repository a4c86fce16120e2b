#include "agent/posix/bounded_read.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/system/thread_without_signals.h"

namespace muster {
namespace {

constexpr std::size_t kWaitingMax = 64;

// The work of one thread. It outlives the caller if the thread is left behind.
struct Reading {
  std::vector<pid_t> pids;
  std::function<std::string(pid_t)> read;
  std::mutex mutex;
  std::condition_variable all_read;
  std::vector<std::string> texts;  // The results for the first texts.size() of `pids`.
  bool left_behind = false;
  std::atomic<bool> has_ended = false;
};

void read_all(Reading& reading) {
  for (const pid_t pid : reading.pids) {
    std::string text = reading.read(pid);
    const std::lock_guard lock(reading.mutex);
    if (reading.left_behind) break;
    reading.texts.push_back(std::move(text));
  }
  reading.all_read.notify_all();
  reading.has_ended = true;
}

/// Waits until all processes are read, or until no read has returned for `limit`.
void wait_for(Reading& reading, std::chrono::milliseconds limit) {
  std::unique_lock lock(reading.mutex);
  const auto is_done = [&reading] { return reading.texts.size() == reading.pids.size(); };
  for (std::size_t before = 0;; before = reading.texts.size()) {
    if (reading.all_read.wait_for(lock, limit, is_done)) return;
    if (reading.texts.size() == before) break;
  }
  reading.left_behind = true;
}

/// The processes that a thread still waits for. For all threads.
class StuckReadings {
 public:
  /// Returns `pids` without those that a thread still waits for. Returns none of them if too many
  /// threads wait.
  std::vector<pid_t> without_stuck(std::vector<pid_t> pids) {
    const std::lock_guard lock(mutex_);
    std::erase_if(readings_, [](const auto& entry) { return entry.second->has_ended.load(); });
    if (readings_.size() >= kWaitingMax) return {};
    std::erase_if(pids, [this](pid_t pid) { return readings_.contains(pid); });
    return pids;
  }
  void add(pid_t pid, std::shared_ptr<Reading> reading) {
    const std::lock_guard lock(mutex_);
    readings_.emplace(pid, std::move(reading));
  }

 private:
  std::mutex mutex_;
  std::map<pid_t, std::shared_ptr<Reading>> readings_;
};

StuckReadings& stuck_readings() {
  // Never destroyed: a thread may return while the agent exits.
  static auto& stuck = *new StuckReadings;
  return stuck;
}

}  // namespace

std::map<pid_t, std::string> read_each_in_time(const std::vector<pid_t>& pids,
                                               std::chrono::milliseconds limit,
                                               const std::function<std::string(pid_t)>& read) {
  std::vector<pid_t> left = stuck_readings().without_stuck(pids);
  std::map<pid_t, std::string> found;
  while (!left.empty()) {
    const auto reading = std::make_shared<Reading>();
    reading->pids = left;
    reading->read = read;
    try {
      thread_without_signals([reading] { read_all(*reading); }).detach();
    } catch (const std::system_error&) {
      return found;  // The system allows no further thread.
    }
    wait_for(*reading, limit);
    const std::lock_guard lock(reading->mutex);
    const std::size_t count = reading->texts.size();
    for (std::size_t i = 0; i < count; ++i)
      found.emplace(left[i], std::move(reading->texts[i]));
    if (count == left.size()) break;
    stuck_readings().add(left[count], reading);
    left.erase(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(count) + 1);
    left = stuck_readings().without_stuck(std::move(left));
  }
  return found;
}

std::optional<std::string> read_in_time(pid_t pid, std::chrono::milliseconds limit,
                                        std::function<std::string()> read) {
  auto found = read_each_in_time({pid}, limit, [read = std::move(read)](pid_t) { return read(); });
  if (found.empty()) return std::nullopt;
  return std::move(found.begin()->second);
}

}  // namespace muster
