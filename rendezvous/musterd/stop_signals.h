// Ends musterd at SIGTERM and SIGINT.
#pragma once

#include <functional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

namespace muster {

/// Waits for SIGTERM and SIGINT, also if the parent process has blocked or ignored them. Both are
/// blocked and read from a signalfd. So a signal that has not been read is still pending after an
/// exec() of the program, whose StopSignals then reads it.
class StopSignals {
 public:
  /// `stop` is called on the loop for the first signal. If the process has not ended kEndWithin
  /// later, it prints a line to stderr and ends with status 1. Other threads must have blocked the
  /// signals. Throws boost::system::system_error if there is no descriptor.
  StopSignals(boost::asio::io_context& loop, std::function<void()> stop);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// In seconds, below TimeoutStopSec= of configs/musterd.service. The end waits for storage (the
  /// last write of the state) and for HTTP answers.
  static constexpr unsigned kEndWithin = 8;

 private:
  boost::asio::posix::stream_descriptor signals_;
};

}  // namespace muster
