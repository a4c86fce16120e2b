// Reads files of /proc about a process, and waits for a limited time.
//
// A read of /proc/PID/io, environ, cmdline, syscall or stack waits for a lock that the process
// holds while it executes a program. Since Linux 6.18 (measured) a read of stat, wchan or exe does,
// too. If the process then waits for dead storage, it keeps the lock, and its readers wait with it.
// Reads of /proc/PID/status, comm and cgroup take no such lock, and need no limit.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace muster {

/// Runs `read`, which reads files of the process `pid`, on a new thread. No value if that takes
/// longer than `limit`. Then the process is not read again until that thread has returned, so each
/// process delays its callers once. At most 64 threads are left waiting, and a few more if several
/// threads call this function at once. `read` may outlive the caller.
std::optional<std::string> read_in_time(pid_t pid, std::chrono::milliseconds limit,
                                        std::function<std::string()> read);

/// Does the same for many processes, in their order, with one thread: on a busy machine it takes
/// long to start a thread for each. If one process takes longer than `limit`, a new thread reads
/// the processes after it. Processes that could not be read are missing in the result.
std::map<pid_t, std::string> read_each_in_time(const std::vector<pid_t>& pids,
                                               std::chrono::milliseconds limit,
                                               const std::function<std::string(pid_t)>& read);

}  // namespace muster
