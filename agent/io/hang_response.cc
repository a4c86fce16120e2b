#include "agent/io/hang_response.h"

#include <utility>

#include <spdlog/spdlog.h>

#include "agent/core/signal_name.h"
#include "agent/io/hang_output.h"
#include "agent/posix/process_activity.h"
#include "rendezvous/net/clock.h"

namespace muster {

HangResponse::HangResponse(boost::asio::io_context& loop, WorkerTable& workers,
                           const std::vector<std::string>& environment, Duration timeout,
                           Handlers handlers)
    : workers_(workers), handlers_(std::move(handlers)), stacks_(loop, environment) {
  workers.observe(*this);
  if (timeout <= Duration(0)) return;
  detector_.emplace(timeout);
  look_.emplace(loop, detector_->interval(), [this] { return look(); });
}

void HangResponse::worker_started(const RunningWorker&) {
  if (look_) look_->begin();
}

void HangResponse::progressed(LocalRank rank) {
  if (detector_) detector_->progressed(rank);
}

void HangResponse::ended_progress(LocalRank rank) {
  if (detector_) detector_->ended_progress(rank);
}

void HangResponse::attempt_ends() {
  ++attempt_;
  stop_watching();
}

void HangResponse::stop_watching() {
  if (!look_) return;
  detector_->reset();
  look_->stop();
}

bool HangResponse::look() {
  if (workers_.running().empty()) return false;
  std::vector<IdleWorker> idle = detector_->observe(family_activity(workers_.running()), now());
  if (idle.empty()) return true;
  stop_watching();
  if (stacks_.busy()) return true;  // Somebody asks already: the hang is seen again.
  on_idle(std::move(idle));
  return false;
}

void HangResponse::asked(int signal) {
  const std::string name = signal_name(signal);
  if (handlers_.workers().empty()) return spdlog::warn("received {}: no worker is running", name);
  if (stacks_.busy())
    return spdlog::warn("received {}: the stacks are being written already", name);
  spdlog::warn("received {}: writing where the workers stand", name);
  collect(name + " was received", [](const auto& evidence) { log_evidence(evidence); });
}

void HangResponse::asked_for(LocalRank rank,
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
            if (attempt != attempt_) return;  // They were ended meanwhile.
            const LocalRank hung = choose_hung_worker(idle, evidence);
            handlers_.on_hung(hung, hang_text(hung, idle, evidence));
          });
}

void HangResponse::collect(std::string why, StackCollector::Done done) {
  has_written_ = true;
  stacks_.collect(handlers_.workers(), std::move(why), handlers_.program(), std::move(done));
}

}  // namespace muster
