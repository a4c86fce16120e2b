// The state of a process group, to which a ProcessGroup refers. Private.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "muster/process_group.h"

namespace muster {

struct ProcessGroup::State {
  c10::intrusive_ptr<c10d::ProcessGroup> group;  // Null if this process is no member, or has left.
  c10::intrusive_ptr<c10d::Backend> split_source;  // See MadeGroup in backends.h.
  std::shared_ptr<void> recorder;                  // See MadeGroup.
  bool has_left = false;
  c10::intrusive_ptr<c10d::Store> store;  // With the group's prefix.
  std::string name;                       // "0" for all processes, "n" for the n-th new_group().
  std::string backend;                    // See ProcessGroup::backend().
  std::vector<int> global_ranks;          // By rank in the group.
};

/// Returns the group's store. Throws Error if this process is not a member.
c10::intrusive_ptr<c10d::Store> store_of(const ProcessGroup& group);

}  // namespace muster
