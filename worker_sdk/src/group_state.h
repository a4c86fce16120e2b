// What a ProcessGroup is a handle of. Private.
#pragma once

#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "muster/process_group.h"

namespace muster {

struct ProcessGroup::State {
  c10::intrusive_ptr<c10d::ProcessGroup> group;  // Null: this process is no member, or has left.
  bool has_left = false;
  c10::intrusive_ptr<c10d::Store> store;  // With the group's prefix.
  std::string name;                       // "0", and then the n of the n-th new_group.
  std::string backend;                    // As ProcessGroup::backend().
  std::vector<int> global_ranks;          // By rank in the group.
};

/// The group's store. Throws Error if this process is no member.
c10::intrusive_ptr<c10d::Store> store_of(const ProcessGroup& group);

}  // namespace muster
