// What rank 0 does alone while the others wait for it at the store. Private.
#pragma once

#include <chrono>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "muster/process_group.h"

namespace muster {

class RankZeroTask {
 public:
  /// ALL members call it.
  RankZeroTask(ProcessGroup group, std::chrono::milliseconds timeout);

  /// Rank 0, once: the task is over; `failure` is empty if it has succeeded.
  void done(const std::string& failure);
  /// The others: returns when rank 0 has succeeded; throws Error with its failure, or once the
  /// timeout has run out. Says on stderr every 30 s that it waits for `what`.
  void wait(const std::string& what);

 private:
  ProcessGroup group_;
  std::chrono::milliseconds timeout_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::string key_;
};

}  // namespace muster
