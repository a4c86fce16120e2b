// What the kernel says about processes that its OOM killer killed: the counters of our memory
// cgroup, which the workers are in, too, and the kernel's log where it may be read.
#pragma once

#include <cstdint>
#include <string>

#include "agent/core/oom_evidence.h"

namespace muster {

class OomWatch {
 public:
  /// Remembers what the counter is now, before the workers of an attempt are started.
  void begin();
  /// What has happened since.
  OomFacts facts() const;

 private:
  std::string dir_;  // Of the cgroup; empty: none was found.
  bool is_v2_ = false;
  std::int64_t kills_ = 0;
  std::int64_t began_us_ = 0;  // As the kernel's log has it.
};

}  // namespace muster
