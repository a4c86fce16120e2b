// Looks at the workers again and again, with one timer.
#pragma once

#include <functional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/core/time.h"

namespace muster {

class RepeatedLook {
 public:
  /// `look` returns whether it wants to look again after the next interval. It may call stop() and
  /// begin() itself.
  RepeatedLook(boost::asio::io_context& io, Duration interval, std::function<bool()> look)
      : timer_(io), interval_(interval), look_(std::move(look)) {}

  /// Nothing happens if it goes on already.
  void begin() {
    if (goes_on_) return;
    goes_on_ = true;
    timer_.expires_after(interval_);
    timer_.async_wait([this](boost::system::error_code ec) {
      if (ec) return;
      goes_on_ = false;
      if (look_()) begin();
    });
  }
  void stop() {
    timer_.cancel();
    goes_on_ = false;
  }

 private:
  boost::asio::steady_timer timer_;
  Duration interval_;
  std::function<bool()> look_;
  bool goes_on_ = false;
};

/// A detector of agent/core, and the looks at the workers that feed it.
template <typename Detector>
struct DetectorWatch {
  DetectorWatch(boost::asio::io_context& io, Duration timeout, std::function<bool()> on_look)
      : detector(timeout), look(io, detector.interval(), std::move(on_look)) {}
  void stop() {
    detector.reset();
    look.stop();
  }

  Detector detector;
  RepeatedLook look;
};

}  // namespace muster
