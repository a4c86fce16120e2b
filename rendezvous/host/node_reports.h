// The latest reports of a run's nodes, for people. Pure. The memory is bounded, whatever nodes
// send.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/time.h"
#include "rendezvous/rounds/limits.h"
#include "rendezvous/rounds/node_report.h"
#include "rendezvous/rounds/run_view.h"

namespace muster {

/// Limits how often one connection may report: kReportBurst at once, then kReportsPerSecond.
class ReportLimiter {
 public:
  bool admit(Instant now);

 private:
  double left_ = kReportBurst;
  Instant last_{};
};

class NodeReports {
 public:
  /// `total` counts the bytes of the reports of all runs. It outlives this object.
  explicit NodeReports(std::size_t& total) : total_(total) {}
  NodeReports(const NodeReports&) = delete;
  NodeReports& operator=(const NodeReports&) = delete;
  ~NodeReports() { clear(); }

  /// `node`: the name of a member.
  void add(const std::string& node, NodeReport report, Instant now);
  /// `node` may have left the run.
  void add_failure(const std::string& node, FailureReport failure);
  /// The node has left the run. Its failure reports are kept.
  void remove(std::string_view node);
  void clear();

  /// Null if the node has reported nothing.
  std::shared_ptr<const ReportView> find(std::string_view node) const;
  /// The node's report of its failure in this round, if there is one.
  std::optional<FailureReport> failure_of(std::string_view node, std::int64_t round) const;

 private:
  struct Failure {
    std::string node;
    FailureReport report;
  };
  void keep(const std::string& node, const FailureReport& report);

  std::size_t& total_;
  std::map<std::string, std::shared_ptr<const ReportView>, std::less<>> latest_;
  std::deque<Failure> failures_;  // Oldest first.
};

}  // namespace muster
