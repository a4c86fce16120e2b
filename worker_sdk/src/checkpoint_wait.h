// A task that rank 0 does alone, while the other ranks wait for it at the store. Private.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "muster/process_group.h"

namespace muster {

class RankZeroTask {
 public:
  /// ALL members must call it.
  RankZeroTask(ProcessGroup group, std::chrono::milliseconds timeout);

  /// Rank 0 calls it once, when the task is over. `failure` is empty if the task has succeeded.
  void done(const std::string& failure);
  /// The other ranks call it. Returns when rank 0 has succeeded. Throws Error with rank 0's
  /// failure, or after the timeout, and c10::Error if the store is gone. Prints on stderr every 30
  /// s that it waits for `what`.
  void wait(const std::string& what);

 private:
  std::vector<std::uint8_t> wait_for_result(const std::string& what);

  ProcessGroup group_;
  std::chrono::milliseconds timeout_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::string key_;
};

}  // namespace muster
