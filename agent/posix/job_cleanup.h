// The last resort: the shim, which owned the workers, was killed.

#pragma once

#include <sys/types.h>

#include <set>

#include "agent/posix/process_scan.h"

namespace muster {

/// Kills every process of the job until none is found: those in the workers' sessions, and those
/// whose environment is marked. Bounded: what is in uninterruptible I/O may stay.
void kill_job(const std::set<pid_t>& sessions, const EnvironmentMark& mark);

}  // namespace muster
