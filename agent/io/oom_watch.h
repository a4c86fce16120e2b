// Reads what the kernel says about processes that its OOM killer has killed: the counters of
// muster's memory cgroup, which the workers are in, too, and the kernel's log if it is readable.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/core/oom_evidence.h"
#include "base/system/owned_fd.h"

namespace muster {

class OomWatch {
 public:
  /// Reads the counter now, before the workers of an attempt are started. Goes to the end of the
  /// kernel's log: the times in it are of no use, as its clock and CLOCK_MONOTONIC drift apart.
  void begin();
  /// What has happened since begin().
  OomFacts facts() const;

 private:
  std::string dir_;  // Of the cgroup; empty if none was found.
  bool is_v2_ = false;
  std::int64_t kills_ = 0;
  OwnedFd kernel_log_;
  mutable std::vector<std::string> kernel_lines_;  // Read from kernel_log_ since begin().
};

}  // namespace muster
