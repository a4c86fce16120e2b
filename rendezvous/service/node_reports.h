// What the nodes of a run have reported last, for people. Pure, and bounded whatever a node sends.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/core/limits.h"
#include "rendezvous/core/node_report.h"
#include "rendezvous/core/run_view.h"
#include "rendezvous/core/time.h"

namespace muster {

/// How often one connection may report: kReportBurst at once, then kReportsPerSecond.
class ReportLimiter {
 public:
  bool admit(Instant now);

 private:
  double left_ = kReportBurst;
  Instant last_{};
};

class NodeReports {
 public:
  /// `total` counts the memory of the reports of all runs; it outlives this object.
  explicit NodeReports(std::size_t& total) : total_(total) {}
  NodeReports(const NodeReports&) = delete;
  NodeReports& operator=(const NodeReports&) = delete;
  ~NodeReports() { clear(); }

  /// `node`: the name of a member.
  void add(const std::string& node, NodeReport report, Instant now);
  /// The node is in the run no more. What it said of a failure is kept.
  void remove(std::string_view node);
  void clear();

  /// Null: it has reported nothing.
  std::shared_ptr<const ReportView> find(std::string_view node) const;
  /// What the node said of its failure in this round; if nothing is known of it, nothing.
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
