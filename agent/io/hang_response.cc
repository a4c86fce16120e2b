#include "agent/io/hang_response.h"

#include <algorithm>
#include <set>
#include <utility>

#include <spdlog/spdlog.h>

#include "agent/core/signal_name.h"
#include "agent/posix/process_activity.h"
#include "base/system/clock.h"

namespace muster {
namespace {

// In the log, one for each worker. Every worker has its file.
constexpr std::size_t kLinesMax = 16;

std::string name_of(const StackCollector::Evidence& evidence) {
  return "local rank " + std::to_string(evidence.rank.value) + " (pid " +
         std::to_string(evidence.pid) + ")";
}

/// "no output and no CPU time for 30 s"; or "no report of progress for 30 s" for a worker that has
/// promised to report progress.
std::string idle_text(const IdleWorker& worker) {
  return fmt::format("{} for {:.3g} s",
                     worker.has_promised ? "no report of progress" : "no output and no CPU time",
                     std::chrono::duration<double>(worker.idle).count());
}

/// Logs where each worker stood and which file has its stacks. Logs each problem once.
void log_evidence(const std::vector<StackCollector::Evidence>& evidence) {
  std::set<std::string> problems;
  for (std::size_t i = 0; i < std::min(evidence.size(), kLinesMax); ++i) {
    const StackCollector::Evidence& one = evidence[i];
    const std::string where =
        one.line ? " stands at " + to_text(*one.line) + "; stacks: " : ": stacks: ";
    if (!one.file.empty()) spdlog::warn("{}{}{}", name_of(one), where, one.file);
  }
  if (evidence.size() > kLinesMax)
    spdlog::warn("and {} workers more, whose stacks are beside these", evidence.size() - kLinesMax);
  for (const StackCollector::Evidence& one : evidence)
    if (!one.problem.empty() && problems.insert(one.problem).second)
      spdlog::warn("{}", one.problem);
}

/// Chooses which of the idle workers to end, and logs it.
LocalRank choose_hung_worker(const std::vector<IdleWorker>& idle,
                             const std::vector<StackCollector::Evidence>& evidence) {
  const auto seen = [&evidence](LocalRank rank) {
    return std::find_if(evidence.begin(), evidence.end(),
                        [rank](const auto& one) { return one.rank == rank; });
  };
  std::vector<HangSuspect> suspects;
  for (const IdleWorker& worker : idle) {
    const auto one = seen(worker.rank);
    suspects.push_back({.rank = worker.rank, .idle = worker.idle, .line = {}});
    if (one != evidence.end()) suspects.back().line = one->line;
  }
  const std::size_t main = main_suspect(suspects);
  const HangSuspect& chosen = suspects[main];
  const auto one = seen(chosen.rank);
  const std::string name =
      one == evidence.end() ? "local rank " + std::to_string(chosen.rank.value) : name_of(*one);
  const std::string where = chosen.line ? "; it stands at " + to_text(*chosen.line) : "";
  const std::string others =
      suspects.size() > 1 ? " (" + std::to_string(suspects.size() - 1) + " more idle)" : "";
  spdlog::error("{} hangs: {}{}{}: ending it", name, idle_text(idle[main]), where, others);
  return chosen.rank;
}

/// For the failure report, about the chosen worker: "it hung: no output …; it stood at …".
std::string hang_text(LocalRank rank, const std::vector<IdleWorker>& idle,
                      const std::vector<StackCollector::Evidence>& evidence) {
  std::string text = "it hung";
  for (const IdleWorker& worker : idle)
    if (worker.rank == rank) text += ": " + idle_text(worker) + " (--hang-timeout)";
  for (const StackCollector::Evidence& one : evidence) {
    if (one.rank != rank) continue;
    if (one.line) text += "\nit stood at " + to_text(*one.line);
    if (!one.file.empty()) text += "\nits stacks: " + one.file;
  }
  return text;
}

}  // namespace

HangResponse::HangResponse(boost::asio::io_context& loop, WorkerTable& workers,
                           const std::vector<std::string>& environment, Duration timeout,
                           Handlers handlers)
    : workers_(workers), handlers_(std::move(handlers)), stacks_(loop, environment) {
  workers.observe(*this);
  if (timeout > Duration(0)) watch_.emplace(loop, timeout, [this] { return check(); });
}

// A worker of the last attempt may have reported progress until it was killed.
void HangResponse::attempt_begins() {
  if (watch_) watch_->stop();
  is_watching_ = true;
}

void HangResponse::worker_started(const RunningWorker&) {
  hung_.reset();
  if (watch_) watch_->check.begin();
}

// A worker that was found to hang can still end with success. Then the watch for the others goes
// on.
void HangResponse::worker_ended(const RunningWorker& worker, const WorkerExit&) {
  if (hung_ == worker.rank) hung_.reset();
  if (watch_ && is_watching_) watch_->check.begin();
}

void HangResponse::progressed(LocalRank rank) {
  if (watch_) watch_->detector.progressed(rank);
}

void HangResponse::ended_progress(LocalRank rank) {
  if (watch_) watch_->detector.ended_progress(rank);
}

void HangResponse::saved(LocalRank rank) {
  if (watch_) watch_->detector.saved(rank);
}

void HangResponse::attempt_ends() {
  ++attempt_;
  is_watching_ = false;
  if (watch_) watch_->stop();
}

bool HangResponse::check() {
  if (!watch_ || workers_.running().empty() || hung_) return false;
  std::vector<IdleWorker> idle = watch_->detector.observe(family_activity(workers_.running()),
                                                          now(), handlers_.console_is_full());
  // If stacks are being written already, the next check finds the hang again.
  if (idle.empty() || stacks_.busy()) return true;
  on_idle(std::move(idle));
  return false;
}

void HangResponse::write_stacks_on_signal(int signal) {
  const std::string name = signal_name(signal);
  if (handlers_.workers().empty()) return spdlog::warn("received {}: no worker is running", name);
  if (stacks_.busy())
    return spdlog::warn("received {}: the stacks are being written already", name);
  spdlog::warn("received {}: writing where the workers stand", name);
  collect(name + " was received", [](const auto& evidence) { log_evidence(evidence); });
}

void HangResponse::request_stacks(LocalRank rank,
                                  std::function<void(const StackCollector::Evidence&)> done) {
  const auto cannot = [&](const char* why) {
    done({.rank = rank, .pid = 0, .file = {}, .line = {}, .problem = why});
  };
  auto workers = handlers_.workers();
  std::erase_if(workers, [rank](const auto& worker) { return !(worker.rank == rank); });
  if (workers.empty()) return cannot("this worker is not running");
  if (stacks_.busy()) return cannot("the stacks are being written already: ask again");
  has_written_ = true;
  stacks_.collect(std::move(workers), "musterctl has asked", handlers_.program(),
                  [done = std::move(done)](const auto& evidence) {
                    log_evidence(evidence);
                    if (!evidence.empty()) done(evidence.front());
                  });
}

void HangResponse::on_idle(std::vector<IdleWorker> idle) {
  const std::string rank = "local rank " + std::to_string(idle.front().rank.value);
  const std::string what = idle_text(idle.front());
  spdlog::warn("{} has had {}: writing where the workers stand", rank, what);
  collect(rank + " had " + what,
          [this, attempt = attempt_, idle = std::move(idle)](const auto& evidence) {
            log_evidence(evidence);
            if (attempt == attempt_) end_hung_worker(idle, evidence);
          });
}

void HangResponse::end_hung_worker(const std::vector<IdleWorker>& idle,
                                   const std::vector<StackCollector::Evidence>& evidence) {
  const bool all_run = std::all_of(idle.begin(), idle.end(), [this](const IdleWorker& worker) {
    return workers_.running().contains(worker.rank);
  });
  if (!all_run)  // The other idle workers may have waited for the one that has ended.
    return spdlog::warn(
        "an idle worker has ended by itself meanwhile: no worker is ended, and the "
        "watch for hangs goes on");
  hung_ = choose_hung_worker(idle, evidence);
  handlers_.on_hung(*hung_, hang_text(*hung_, idle, evidence));
}

void HangResponse::collect(std::string why, StackCollector::Done done) {
  has_written_ = true;
  stacks_.collect(handlers_.workers(), std::move(why), handlers_.program(), std::move(done));
}

}  // namespace muster
