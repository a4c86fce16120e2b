// The code that a new child runs between clone and execve.
#pragma once

#include <sys/types.h>

#include "agent/posix/spawn.h"

namespace muster {

struct ChildPlan {
  SpawnOptions options;
  pid_t parent = -1;
  int status = -1;  // The descriptor to which the child writes its failure; above 2.
};

/// Executes the program of a ChildPlan. Returns only if that fails: then the result is the child's
/// exit status. May run in the parent's memory, beside the parent's threads: see spawned_child.cc.
int run_child(void* plan);

}  // namespace muster
