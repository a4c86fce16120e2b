// Watches the workers for hanging, with one timer. Exists only where --hang-timeout was given.

#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/core/hang_detector.h"

namespace muster {

class HangWatch {
 public:
  using OnHang = std::function<void(std::vector<IdleWorker>)>;

  /// `on_hang` is called at most once between two calls of reset(), and not from within another.
  HangWatch(boost::asio::io_context& io, Duration timeout, OnHang on_hang);

  void started(LocalRank rank, pid_t pid);
  void ended(LocalRank rank);
  void progressed(LocalRank rank) { detector_.progressed(rank); }
  void ended_progress(LocalRank rank) { detector_.ended_progress(rank); }
  /// The attempt is over, or is being stopped: nothing is watched until the next start.
  void reset();

 private:
  void arm();
  void look();

  boost::asio::steady_timer timer_;
  HangDetector detector_;
  OnHang on_hang_;
  std::map<LocalRank, pid_t> workers_;
  bool armed_ = false;
};

}  // namespace muster
