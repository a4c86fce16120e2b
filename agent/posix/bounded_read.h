// Reads what /proc says about a process, for a bounded time.
//
// A read of /proc/PID/io, environ, cmdline, syscall or stack waits for a lock that the process
// holds while it executes a program; since Linux 6.18 (measured) one of stat, wchan and exe does,
// too. A process that waits for dead storage meanwhile keeps the lock, and its readers wait with
// it. /proc/PID/status, comm and cgroup take no such lock: they may be read anywhere.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace muster {

/// Runs `read`, which reads files of the process `pid`, on a thread of its own. Nothing if that
/// takes longer than `limit`; the process is then not read again until that thread has come back,
/// so a process makes its reader wait once. At most 64 threads are left waiting. Called by one
/// thread only; `read` may outlive its caller.
std::optional<std::string> read_in_time(pid_t pid, std::chrono::milliseconds limit,
                                        std::function<std::string()> read);

/// The same for many processes, in their order, by one thread: a busy machine takes long to start
/// one for each. Where a process makes it wait longer than `limit`, another thread reads those
/// behind it. What could not be read is missing.
std::map<pid_t, std::string> read_each_in_time(const std::vector<pid_t>& pids,
                                               std::chrono::milliseconds limit,
                                               std::function<std::string(pid_t)> read);

}  // namespace muster
