// Finds processes in /proc: the descendants of one process, or the processes of a job.

#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

struct Process {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t session = 0;
  char state = '?';  // As in /proc/PID/status: R, S, D, Z …
  int threads = 0;   // Threads that have not ended.
};

/// Reads a file or pipe from its present position, at most `bytes_max`. Stops at an error.
std::string read_beginning(int fd, std::size_t bytes_max);

/// The beginning of a file of /proc, at most `bytes_max`; empty if it cannot be read. Without
/// read_in_time() (bounded_read.h) only `status`, `comm` and `cgroup` of another process may be
/// read.
std::string read_proc_file(const char* path, std::size_t bytes_max);

/// Whether /proc shows the processes of the calling process' pid namespace. False without /proc,
/// and with the /proc of another namespace (`unshare --fork --pid` without --mount-proc), where a
/// number names another process. All functions below then find no process.
bool proc_shows_own_pids();

/// Whether any thread of the process runs. A process whose first thread alone has ended has the
/// state of a zombie, but is alive.
bool is_alive(const Process& process);

/// Sends a signal to this process, but not to another process that has got its pid meanwhile.
bool signal_process(const Process& process, int number);

/// All processes, including zombies. Costs about 10 us for each process.
std::vector<Process> all_processes();

/// One process, which may be a zombie. No value: there is no such process, or /proc cannot be read.
std::optional<Process> read_process(pid_t pid);

/// The state of one process, as in Process::state; '?': there is no such process.
char process_state(pid_t pid);

/// The name of the process, as in /proc/PID/comm, in ASCII; "?": there is no such process.
std::string process_name(pid_t pid);

/// True if the process catches, ignores or blocks this signal, and so can outlive it. False if it
/// does not, or if there is no such process any more.
bool can_outlive(pid_t pid, int signal);

/// True if the process handles this signal in code of its own, and is no shell. A shell runs its
/// trap only when the command that it waits for has ended, and bash always catches SIGINT: a signal
/// to it alone would reach nobody. False if it cannot be read.
bool handles_signal(pid_t pid, int signal);

/// All living descendants of `root`, without the processes in `except` and their descendants.
/// Misses none if `root` is a subreaper: then no orphan can leave the tree of `root`.
std::vector<Process> descendants(pid_t root, const std::set<pid_t>& except);

/// The children of the calling process, including zombies. Cheap. If a subreaper has no children,
/// it has no descendants. No value: /proc cannot be read now, because the process or the machine
/// has no descriptor or no memory left. Without /proc there are no children.
std::optional<std::set<pid_t>> own_children();

/// Whether a variable, "NAME=value", marks its process as one of the job.
using EnvironmentMark = std::function<bool(std::string_view variable)>;

/// The session of a job's worker. When no process is in a session any more, the kernel can give its
/// number to another process. So a process that began after the worker's end does not belong to the
/// job because of the number alone.
struct JobSession {
  std::uint64_t start = 0;           // A time after the worker's start, in ticks; 0: not known.
  std::optional<std::uint64_t> end;  // A time after the worker's end; no value: the worker lives.
};
using JobSessions = std::map<pid_t, JobSession>;  // By the worker's pid.

/// The present time of JobSession's clock.
std::uint64_t ticks_since_boot();

/// The living processes of a job, for the case that their common ancestor is dead. These are the
/// processes in one of `sessions`, those with a marked variable in their environment, the
/// descendants of both, and the members of all their sessions. Never includes the calling process.
std::vector<Process> processes_of_job(const JobSessions& sessions, const EnvironmentMark& mark);

}  // namespace muster
