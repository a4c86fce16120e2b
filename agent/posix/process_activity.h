// What processes have done, and where they stand in the kernel, from /proc.

#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "agent/core/hang_detector.h"
#include "rendezvous/core/ids.h"

namespace muster {

/// For each of `workers`: the sums over it, its descendants, ended ones that were waited for
/// included, and whoever is in its session. One pass over /proc.
std::vector<WorkerActivity> family_activity(const std::map<LocalRank, pid_t>& workers);

/// A worker's living descendants and members of its session, without itself.
std::vector<pid_t> family_of(pid_t leader);

/// Which program it is, for people: its path and the main thread's name. Not its command line:
/// arguments may hold secrets.
std::string program_text(pid_t pid);

/// The path of its program, every link followed; empty if it cannot be read.
std::string executable_of(pid_t pid);

/// One paragraph for each thread: name, state, CPU time, the kernel function and the system call
/// that it waits in, and its kernel stack where root asks. Needs no ptrace.
std::string thread_table(pid_t pid);

}  // namespace muster
