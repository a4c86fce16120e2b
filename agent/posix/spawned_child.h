// What a new child does between clone and execve.
#pragma once

#include <sys/types.h>

#include "agent/posix/spawn.h"

namespace muster {

struct ChildPlan {
  SpawnOptions options;
  pid_t parent = -1;
  int status = -1;  // Where the child writes its failure; above 2.
};

/// Becomes the program of a ChildPlan. It returns, the exit status, only if that fails. May run in
/// the parent's memory, beside the parent's own threads: see spawned_child.cc.
int run_child(void* plan);

}  // namespace muster
