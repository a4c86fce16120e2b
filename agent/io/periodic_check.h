// Runs a check at intervals, with one timer.
#pragma once

#include <functional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/time.h"

namespace muster {

class PeriodicCheck {
 public:
  /// `check` returns whether to run it again after the next interval. It may call stop() and
  /// begin() itself.
  PeriodicCheck(boost::asio::io_context& io, Duration interval, std::function<bool()> check)
      : timer_(io), interval_(interval), check_(std::move(check)) {}

  /// Runs the check after the interval. Does nothing if it is scheduled already.
  void begin() {
    if (scheduled_) return;
    scheduled_ = true;
    timer_.expires_after(interval_);
    timer_.async_wait([this](boost::system::error_code ec) {
      if (ec) return;
      scheduled_ = false;
      if (check_()) begin();
    });
  }
  void stop() {
    timer_.cancel();
    scheduled_ = false;
  }

 private:
  boost::asio::steady_timer timer_;
  Duration interval_;
  std::function<bool()> check_;
  bool scheduled_ = false;
};

/// A detector of agent/core, and the periodic check that feeds it with samples of the workers.
template <typename Detector>
struct DetectorWatch {
  DetectorWatch(boost::asio::io_context& io, Duration timeout, std::function<bool()> on_check)
      : detector(timeout), check(io, detector.interval(), std::move(on_check)) {}
  void stop() {
    detector.reset();
    check.stop();
  }

  Detector detector;
  PeriodicCheck check;
};

}  // namespace muster
