// Reads what the kernel says about processes that its OOM killer has killed: the counters of
// muster's memory cgroup, which the workers are in, too, and the kernel's log if it is readable.
#pragma once

#include <cstdint>
#include <string>

#include "agent/core/oom_evidence.h"

namespace muster {

class OomWatch {
 public:
  /// Reads the counter now, before the workers of an attempt are started.
  void begin();
  /// What has happened since begin().
  OomFacts facts() const;

 private:
  std::string dir_;  // Of the cgroup; empty if none was found.
  bool is_v2_ = false;
  std::int64_t kills_ = 0;
  std::int64_t began_us_ = 0;  // In the time of the kernel's log.
};

}  // namespace muster
