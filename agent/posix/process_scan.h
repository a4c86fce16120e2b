// Finds processes in /proc: the descendants of one, or those that belong to a job.

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
  int threads = 0;   // Those that have not ended.
};

/// What can be read of a file or pipe from where it stands, at most `bytes_max`.
std::string read_beginning(int fd, std::size_t bytes_max);

/// The beginning of a file of /proc, at most `bytes_max`; empty when it cannot be read. Of another
/// process only `status`, `comm` and `cgroup`, or within read_in_time() (bounded_read.h).
std::string read_proc_file(const char* path, std::size_t bytes_max);

/// When a process began, in ticks since the boot: from the text of its /proc/PID/stat.
std::optional<std::uint64_t> start_in(const std::string& stat);

/// Whether it runs, or any thread of it: a first thread that has ended alone looks like a zombie.
bool is_alive(const Process& process);

/// Sends a signal to this very process: not to another one that has its number by now.
bool signal_process(const Process& process, int number);

/// Every process there is, zombies included. Costs about 10 us each.
std::vector<Process> all_processes();

/// The state of one process, as above; '?': it is not there.
char process_state(pid_t pid);

/// Whether it catches, ignores or blocks this signal, and so can outlive it. False: it cannot, or
/// it is not there any more.
bool can_outlive(pid_t pid, int signal);

/// Every living descendant of `root`, but not `except` nor what descends from those. Complete while
/// `root` is a subreaper: then no orphan can leave its tree.
std::vector<Process> descendants(pid_t root, const std::set<pid_t>& except);

/// The children of the calling process, zombies included. Cheap; and while it is a subreaper, no
/// children means no descendants.
std::set<pid_t> own_children();

/// Whether a variable, "NAME=value", marks the process that has it.
using EnvironmentMark = std::function<bool(std::string_view variable)>;

/// A session of a job's worker. The kernel gives its number to another process once nobody is in
/// the session: what began after the worker's end is not taken for the job's by the number alone.
struct JobSession {
  std::uint64_t start = 0;           // When the worker had started, in ticks; 0: not known.
  std::optional<std::uint64_t> end;  // When it had ended; nothing: it lives.
};
using JobSessions = std::map<pid_t, JobSession>;  // By the worker's pid.

/// The clock of JobSession, now.
std::uint64_t ticks_since_boot();

/// Living processes in one of `sessions`, or with a variable in their environment that marks them,
/// and what descends from those or is in a session of theirs. For the case that the common ancestor
/// is dead. Never the calling process.
std::vector<Process> processes_of_job(const JobSessions& sessions, const EnvironmentMark& mark);

}  // namespace muster
