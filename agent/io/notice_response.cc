#include "agent/io/notice_response.h"

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "agent/core/preemption.h"
#include "agent/core/progress_text.h"
#include "agent/core/signal_events.h"
#include "agent/core/signal_name.h"
#include "base/system/clock.h"

namespace muster {

NoticeResponse::NoticeResponse(boost::asio::io_context& io, const AgentOptions& options,
                               WorkerTable& workers, Handlers handlers)
    : io_(io),
      options_(options),
      handlers_(std::move(handlers)),
      answers_(options.local_world_size) {
  workers.observe(*this);
}

void NoticeResponse::begin(const std::vector<std::string>& environment) {
  if (options_.notice_from.empty()) return;
  source_ =
      std::make_shared<NoticeSource>(io_,
                                     NoticeSource::Options{.command = options_.notice_from,
                                                           .environment = environment,
                                                           .left_at_end = options_.notice_left},
                                     [this, alive = std::weak_ptr(alive_)](const NodeGoes& goes) {
                                       if (!alive.expired()) node_goes(goes);
                                     });
  source_->start();
}

void NoticeResponse::close(std::function<void()> done) {
  if (!source_) return done();
  source_->close(std::move(done));
}

bool NoticeResponse::on_signal(int number) {
  const auto& signals = options_.notice_signals;
  const auto found = std::find_if(signals.begin(), signals.end(),
                                  [number](const auto& one) { return one.number == number; });
  if (found == signals.end()) return false;
  // Front and shim both report a signal that every process of the job gets.
  const bool repeats = signalled_ && signalled_->first == number &&
                       now() - signalled_->second < SignalEvents::kEventWindow;
  if (repeats) return true;
  signalled_ = {number, now()};
  node_goes({found->left, signal_name(number)});
  return true;
}

void NoticeResponse::node_goes(const NodeGoes& goes) {
  if (leaves_) return;  // The host knows already that this node leaves.
  const Duration left = until_stop(goes.left, options_.shutdown_timeout);
  spdlog::warn("{}", node_goes_text(goes, left));
  handlers_.tell_host({.left = left, .reason = goes.reason});
}

void NoticeResponse::node_leaves(int number) {
  if (std::exchange(leaves_, true) || !has_workers_) return;
  handlers_.tell_host(
      {.left = own_share(options_.shutdown_timeout), .reason = signal_name(number)});
}

void NoticeResponse::on_job_notice(const JobNotice& notice) {
  if (leaves_) return;  // The workers of this node have got their own notice.
  notice_ = notice;
  if (has_workers_) tell_workers(notice);
}

void NoticeResponse::tell_workers(const JobNotice& notice) {
  WorkerNotice told{.deadline = notice.deadline,
                    .reason = notice.reason,
                    .doomed = notice.this_node,
                    .doomed_ranks = notice.doomed_ranks,
                    .follow = notice.stops ? AfterNotice::Stop : AfterNotice::Shrink};
  spdlog::warn("{}", notice_text(told, notice.deadline - now()));
  answers_.notified(channel_ != nullptr ? channel_->notify(std::move(told)) : ++told_);
  handlers_.on_told(notice.deadline);
  check_answers_later();  // Of workers that have answered ahead.
}

void NoticeResponse::on_saved(const WorkerSaved& saved) {
  answers_.answered(saved.rank, saved.id);
  check_answers_later();
}

// Not at once: the session may end the job at once, and with it the channel that has called.
void NoticeResponse::check_answers_later() {
  boost::asio::post(io_, [this, alive = std::weak_ptr(alive_)] {
    if (alive.expired() || !answers_.take_complete()) return;
    spdlog::info("all workers of this node have answered the notice");
    handlers_.tell_saved();
  });
}

void NoticeResponse::before_worker_ends() {
  if (channel_ != nullptr) channel_->read_waiting();
}

void NoticeResponse::attempt_begins() {
  answers_.attempt_begins();
  has_workers_ = true;
  if (notice_) tell_workers(*notice_);
}

void NoticeResponse::worker_ended(const RunningWorker& worker, const WorkerExit& exit) {
  answers_.ended(worker.rank, exit.ok());
  if (answers_.holds()) check_answers_later();
}

}  // namespace muster
