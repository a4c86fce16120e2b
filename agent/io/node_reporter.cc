#include "agent/io/node_reporter.h"

#include <algorithm>
#include <utility>

#include "agent/core/report_text.h"
#include "base/system/clock.h"
#include "base/system/system_random.h"
#include "rendezvous/rounds/limits.h"

namespace muster {
namespace {

constexpr Duration kInterval = std::chrono::seconds(1);
// Workers start and end together: the delay collects their changes in one report. The nodes of a
// large job do so together, too: the delay is random, so that their reports do not come at once.
constexpr std::uint64_t kGatherLeastMs = 100;
constexpr std::uint64_t kGatherMostMs = 1'000;
// Progress changes all the time: thousands of nodes must not keep their host busy with it.
constexpr std::uint64_t kProgressLeastMs = 7'500;
constexpr std::uint64_t kProgressMostMs = 12'500;

Duration random_delay(std::uint64_t least_ms, std::uint64_t most_ms) {
  return std::chrono::milliseconds(least_ms + random_number() % (most_ms - least_ms));
}

}  // namespace

NodeReporter::NodeReporter(boost::asio::io_context& io, int workers, Send send)
    : timer_(io), send_(std::move(send)), workers_(static_cast<std::size_t>(workers)) {}

void NodeReporter::attempt_begins() {
  attempt_round_ = round_;
  ++starts_;
  for (std::size_t i = 0; i < workers_.size(); ++i)
    workers_[i] = {.report = {.local_rank = static_cast<int>(i)}, .progress = {}};
  schedule_report();
}

void NodeReporter::worker_started(const RunningWorker& started) {
  WorkerReport& worker = at(started.rank).report;
  worker.state = WorkerReport::State::Running;
  worker.pid = started.pid;
  schedule_report();
}

void NodeReporter::worker_ended(const RunningWorker& ended, const WorkerExit& exit) {
  WorkerReport& worker = at(ended.rank).report;
  worker.state = exit.ok() ? WorkerReport::State::Succeeded : WorkerReport::State::Failed;
  worker.exit_code = exit.code();
  schedule_report();
}

void NodeReporter::progressed(LocalRank rank, std::int64_t step) {
  Worker& worker = at(rank);
  worker.progress = now();
  worker.report.step = step;
  if (!due_) send_within(random_delay(kProgressLeastMs, kProgressMostMs));
}

void NodeReporter::failed(LocalRank rank, const WorkerExit& exit, const std::string& because) {
  failure_ = FailureReport{.round = attempt_round_,
                           .local_rank = rank.value,
                           .rank = ranks_.global_rank(rank).value,
                           .pid = at(rank).report.pid,
                           .exit = exit_text(exit),
                           .because = because};
  awaits_end_ = true;
  send_now();
}

void NodeReporter::ended(const std::vector<ExplainedEnd>& ends) {
  if (!failure_ || !std::exchange(awaits_end_, false)) return;
  const auto end = std::find_if(ends.begin(), ends.end(), [&](const ExplainedEnd& one) {
    return one.local_rank.value == failure_->local_rank;
  });
  if (end == ends.end()) return;
  FailureReport known = *failure_;
  known.because = end->ended_because;
  if (known.because.empty()) known.because = end->oom_evidence;
  const auto& error = end->error;
  if (error && error->has_value()) known.message = (**error).message;
  known.stderr_end =
      without_frames(end->stderr_tail.empty() ? end->stderr_file_end : end->stderr_tail);
  if (known == *failure_) return;
  failure_ = std::move(known);
  send_now();
}

void NodeReporter::zygote_measured(std::optional<std::uint64_t> bytes) {
  zygote_bytes_ = bytes;
  schedule_report();
}

void NodeReporter::schedule_report() {
  send_within(random_delay(kGatherLeastMs, kGatherMostMs));
}

void NodeReporter::send_within(Duration delay) {
  const Instant due = std::max(sent_ ? *sent_ + kInterval : now(), now() + delay);
  if (due_ && *due_ <= due) return;
  due_ = due;
  timer_.expires_at(to_steady(due));
  timer_.async_wait([this, alive = alive_](const boost::system::error_code& ec) {
    if (!ec && *alive) send_now();
  });
}

void NodeReporter::send_now() {
  timer_.cancel();
  due_.reset();
  const Instant at = now();
  sent_ = at;
  NodeReport report{.round = attempt_round_, .starts = starts_};
  report.workers = static_cast<int>(workers_.size());
  report.listed = listed(at);
  report.failure = failure_;
  report.zygote_bytes = zygote_bytes_;
  send_(report);
}

/// At most kMaxReportedWorkers: failed workers have precedence.
std::vector<WorkerReport> NodeReporter::listed(Instant at) const {
  std::vector<WorkerReport> all;
  for (const Worker& worker : workers_) {
    all.push_back(worker.report);
    if (worker.progress) all.back().progress_before = at - *worker.progress;
  }
  std::stable_partition(all.begin(), all.end(), [](const WorkerReport& worker) {
    return worker.state == WorkerReport::State::Failed;
  });
  all.resize(std::min(all.size(), kMaxReportedWorkers));
  std::sort(all.begin(), all.end(), [](const WorkerReport& a, const WorkerReport& b) {
    return a.local_rank < b.local_rank;
  });
  return all;
}

}  // namespace muster
