#include "rendezvous/host/node_reports.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace muster {
namespace {

std::size_t size_of(const FailureReport& failure) {
  return sizeof failure + failure.exit.size() + failure.because.size() + failure.message.size() +
         failure.stderr_end.size();
}

std::size_t size_of(const ReportView& view) {
  return sizeof view + view.report.listed.capacity() * sizeof(WorkerReport) +
         (view.report.failure ? size_of(*view.report.failure) : 0);
}

void drop_texts(FailureReport& failure) {
  failure.because.clear();
  failure.message.clear();
  failure.stderr_end.clear();
}

}  // namespace

bool ReportLimiter::admit(Instant now) {
  const double passed = std::chrono::duration<double>(now - last_).count();
  last_ = now;
  left_ = std::min<double>(kReportBurst, left_ + passed * kReportsPerSecond);
  if (left_ < 1) return false;
  left_ -= 1;
  return true;
}

void NodeReports::add(const std::string& node, NodeReport report, Instant now) {
  remove(node);
  report.listed.shrink_to_fit();
  ReportView view{std::move(report), now};
  auto& failure = view.report.failure;
  if (failure && total_ + size_of(view) > kMaxReportBytes) drop_texts(*failure);
  if (total_ + size_of(view) > kMaxReportBytes) return;
  if (failure) keep(node, *failure);
  total_ += size_of(view);
  latest_[node] = std::make_shared<const ReportView>(std::move(view));
}

void NodeReports::add_failure(const std::string& node, FailureReport failure) {
  if (total_ + size_of(failure) > kMaxReportBytes) drop_texts(failure);
  keep(node, failure);
}

/// Keeps a failure report. A node reports the same failure again, with more details, after it has
/// read its workers' error files: the later report replaces the earlier one. If there are too many,
/// the second oldest is dropped, because people ask for the oldest.
void NodeReports::keep(const std::string& node, const FailureReport& report) {
  const auto same = std::find_if(failures_.begin(), failures_.end(), [&](const Failure& known) {
    return known.node == node && known.report.round == report.round;
  });
  if (same != failures_.end()) {
    total_ -= size_of(same->report);
    same->report = report;
  } else {
    if (failures_.size() >= kMaxReportedFailures) {
      total_ -= size_of(failures_[1].report);
      failures_.erase(failures_.begin() + 1);
    }
    failures_.push_back({node, report});
  }
  total_ += size_of(report);
}

void NodeReports::remove(std::string_view node) {
  const auto known = latest_.find(node);
  if (known == latest_.end()) return;
  total_ -= size_of(*known->second);
  latest_.erase(known);
}

void NodeReports::clear() {
  while (!latest_.empty())
    remove(std::string(latest_.begin()->first));
  for (const Failure& failure : failures_)
    total_ -= size_of(failure.report);
  failures_.clear();
}

std::shared_ptr<const ReportView> NodeReports::find(std::string_view node) const {
  const auto known = latest_.find(node);
  return known == latest_.end() ? nullptr : known->second;
}

std::optional<FailureReport> NodeReports::failure_of(std::string_view node,
                                                     std::int64_t round) const {
  for (const Failure& failure : failures_)
    if (failure.node == node && failure.report.round == round) return failure.report;
  return std::nullopt;
}

}  // namespace muster
