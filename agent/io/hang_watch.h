// Watches the workers for hanging. Exists only where --hang-timeout was given.

#pragma once

#include <functional>
#include <map>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/core/hang_detector.h"
#include "agent/core/worker_table.h"
#include "agent/io/repeated_look.h"

namespace muster {

class HangWatch {
 public:
  using OnHang = std::function<void(std::vector<IdleWorker>)>;

  /// `on_hang` is called at most once between two calls of stop(), and not from within another.
  HangWatch(boost::asio::io_context& io, const WorkerTable& workers, Duration timeout,
            OnHang on_hang);

  /// Watches from now on, as long as a worker runs.
  void begin() { look_.begin(); }
  void progressed(LocalRank rank) { detector_.progressed(rank); }
  void ended_progress(LocalRank rank) { detector_.ended_progress(rank); }
  /// The attempt is over, or is being stopped: nothing is watched until begin().
  void stop();

 private:
  bool look();

  const WorkerTable& workers_;
  HangDetector detector_;
  OnHang on_hang_;
  std::map<LocalRank, WorkerActivity> last_;
  RepeatedLook look_;
};

}  // namespace muster
