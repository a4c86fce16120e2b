// The queue of the shim's reports. They wait here for room in the agent's socket.
#pragma once

#include <deque>

#include "agent/posix/shim_protocol.h"
#include "base/result.h"

namespace muster {

/// Bounded by use: a few reports for each worker, and one for each signal number.
class ReportQueue {
 public:
  void add(const ShimReport& report) { waiting_.push_back(report); }
  /// Adds an event that began with this signal. Waiting events of one number share one report.
  void add_signal(int number);
  void clear() { waiting_.clear(); }
  bool is_empty() const { return waiting_.empty(); }
  /// Sends all reports, or as many as the socket takes: then the result is EAGAIN. Another error
  /// means that the agent is ending.
  boost::system::error_code send_to(int socket);

 private:
  std::deque<ShimReport> waiting_;
};

}  // namespace muster
