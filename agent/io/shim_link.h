// The agent's end of the socket to the shim, on the control loop.

#pragma once

#include <deque>
#include <functional>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "agent/posix/shim_protocol.h"

namespace muster {

/// Sends requests in order, without ever blocking, and passes on each report as it arrives.
class ShimLink {
 public:
  struct Handlers {
    std::function<void(const ShimReport&)> on_report;
    std::function<void()> on_lost;  // The shim is gone. Called once, as the last handler.
  };

  /// Owns `socket`.
  ShimLink(boost::asio::io_context& io, int socket, Handlers handlers);

  /// The descriptors are closed when the request has been sent.
  void send(const ShimRequest& request, std::vector<OwnedFd> fds = {});

  /// True when every request has been handed to the kernel.
  bool idle() const { return queue_.empty(); }

 private:
  struct Waiting {
    ShimRequest request;
    std::vector<OwnedFd> fds;
  };
  void flush();
  void wait_to_read();
  void receive_reports();
  void mark_lost();

  boost::asio::posix::stream_descriptor socket_;
  Handlers handlers_;
  std::deque<Waiting> queue_;  // At most one start for each worker, and a few others.
  bool waiting_to_write_ = false;
  bool lost_ = false;
};

}  // namespace muster
