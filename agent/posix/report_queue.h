// The shim's reports that wait for room on the agent's socket.
#pragma once

#include <deque>

#include "agent/posix/shim_protocol.h"
#include "rendezvous/core/result.h"

namespace muster {

/// A few for each worker, and one for each kind of signal.
class ReportQueue {
 public:
  void add(const ShimReport& report) { waiting_.push_back(report); }
  /// An event that began with this signal. Those of one number that wait are one report.
  void add_signal(int number);
  void clear() { waiting_.clear(); }
  bool is_empty() const { return waiting_.empty(); }
  /// Sends all, or as much as the socket takes (EAGAIN). Another error: the agent is ending.
  boost::system::error_code send_to(int socket);

 private:
  std::deque<ShimReport> waiting_;
};

}  // namespace muster
