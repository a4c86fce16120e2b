// Reads from /proc what processes have done, and where they wait in the kernel.

#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "agent/core/hang_detector.h"
#include "base/ids.h"

namespace muster {

/// The activity of each of `workers`. It is the sum over the worker, its descendants and the
/// members of its session. Descendants that have ended count, too, if their parent has waited for
/// them. Reads the list of processes once.
std::vector<WorkerActivity> family_activity(const std::map<LocalRank, pid_t>& workers);

/// A worker's living descendants and the living members of its session, without the worker.
std::vector<pid_t> family_of(pid_t leader);

/// The program of a process, for people: its path and the main thread's name. Never the command
/// line, as arguments may hold secrets.
std::string program_text(pid_t pid);

/// The path of a process's program, with all links resolved; empty if it cannot be read.
std::string executable_of(pid_t pid);

/// One paragraph for each thread: its name, state and CPU time, the kernel function and the system
/// call that it waits in, and, if the caller is root, its kernel stack. Needs no ptrace. Takes up
/// to a second for a thousand threads, and 5 s if the process cannot be read: not to be called on
/// the loop.
std::string thread_table(pid_t pid);

}  // namespace muster
