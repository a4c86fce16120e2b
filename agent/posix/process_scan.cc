#include "agent/posix/process_scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "agent/core/stat_text.h"
#include "agent/posix/bounded_read.h"
#include "agent/posix/kernel_calls.h"
#include "base/system/owned_fd.h"
#include "base/whole_number.h"

namespace muster {
namespace {

constexpr std::chrono::milliseconds kReadLimit{200};  // For one process that cannot be read.
constexpr std::size_t kEnvironBytesMax = 8 << 20;     // Far above the kernel's usual 2 MiB.

/// The text after `name` in /proc/PID/status; null: there is no such line.
const char* field_of(const std::string& status, std::string_view name) {
  const std::size_t at = status.find(name);
  return at == std::string::npos ? nullptr : status.c_str() + at + name.size();
}

int number_of(const std::string& status, std::string_view name) {
  const char* field = field_of(status, name);
  return field == nullptr ? 0 : static_cast<int>(std::strtol(field, nullptr, 10));
}

std::string read_status(pid_t pid) {
  if (!proc_shows_own_pids()) return {};
  std::array<char, 64> path;
  std::snprintf(path.data(), path.size(), "/proc/%d/status", pid);
  return read_proc_file(path.data(), 16384);
}

using Starts = std::map<pid_t, std::uint64_t>;

/// When processes began, by the clock of ticks_since_boot(). Processes that are gone or cannot be
/// read now are missing in the result.
Starts starts_of(const std::vector<pid_t>& pids) {
  const auto texts = read_each_in_time(pids, kReadLimit, [](pid_t pid) {
    return read_proc_file(("/proc/" + std::to_string(pid) + "/stat").c_str(), 4096);
  });
  Starts starts;
  for (const auto& [pid, text] : texts)
    if (const auto start = start_in(text)) starts.emplace(pid, *start);
  return starts;
}

/// Whether an open() failed only because the process or the machine has none left now.
bool lacks_files(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM;
}

/// Adds the children of one thread of the calling process. Returns 0, or the errno of open().
int add_children(const std::string& thread, std::set<pid_t>& children) {
  const std::string path = "/proc/self/task/" + thread + "/children";
  const OwnedFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return errno;
  const std::string text = read_beginning(fd.get(), 1 << 20);
  const char* at = text.c_str();
  for (char* end = nullptr;; at = end) {
    const long pid = std::strtol(at, &end, 10);
    if (end == at) return 0;
    children.insert(static_cast<pid_t>(pid));
  }
}

/// The process whose start time decides whether `process` belongs to the session that it names.
/// That is the leader while the worker lives, and `process` itself afterwards.
pid_t deciding_pid(const Process& process, const JobSession& session) {
  return session.end ? process.pid : process.session;
}

/// Whether `process`, which is in a session of this number, belongs to the job's session.
bool is_in_session(const Process& process, const JobSession& session, const Starts& starts) {
  const auto start = starts.find(deciding_pid(process, session));
  if (session.end) return start != starts.end() && start->second <= *session.end;
  // If there is no leader, or it cannot be read, the process counts as one of the job. As far as
  // muster knows the worker still lives, so the number cannot have been another session's for long.
  return session.start == 0 || start == starts.end() || start->second <= session.start;
}

/// Whether a set of signals in /proc/PID/status has this one.
bool has_signal(const std::string& status, std::string_view set_name, int signal) {
  const char* field = field_of(status, set_name);
  return field != nullptr && (std::strtoull(field, nullptr, 16) >> (signal - 1) & 1U) != 0;
}

/// By its program, not by its name: a script that names its shell in the first line has its own.
bool runs_a_shell(pid_t pid) {
  static constexpr std::array<std::string_view, 13> kShells{
      "sh",   "bash", "dash", "ash", "busybox", "ksh",  "ksh93",
      "mksh", "zsh",  "fish", "csh", "tcsh",    "rbash"};
  std::array<char, PATH_MAX> target{};
  const std::string link = "/proc/" + std::to_string(pid) + "/exe";
  const ssize_t size = ::readlink(link.c_str(), target.data(), target.size());
  if (size <= 0) return false;
  std::string_view program(target.data(), static_cast<std::size_t>(size));
  program.remove_prefix(program.rfind('/') + 1);
  return std::find(kShells.begin(), kShells.end(), program) != kShells.end();
}

bool is_marked(const std::string& environ, const EnvironmentMark& mark) {
  for (std::size_t at = 0; at < environ.size();) {
    const std::size_t end = std::min(environ.find('\0', at), environ.size());
    if (mark(std::string_view(environ).substr(at, end - at))) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

std::string read_beginning(int fd, std::size_t bytes_max) {
  std::string text;
  std::array<char, 16384> chunk;
  while (text.size() < bytes_max) {
    const ssize_t n = ::read(fd, chunk.data(), std::min(chunk.size(), bytes_max - text.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(chunk.data(), static_cast<std::size_t>(n));
  }
  return text;
}

bool proc_shows_own_pids() {
  std::array<char, 32> target{};
  const ssize_t size = ::readlink("/proc/self", target.data(), target.size());
  if (size <= 0) return false;
  return whole_number<pid_t>(std::string_view(target.data(), static_cast<std::size_t>(size))) ==
         ::getpid();
}

std::string read_proc_file(const char* path, std::size_t bytes_max) {
  const OwnedFd fd(::open(path, O_RDONLY | O_CLOEXEC));
  return fd.is_open() ? read_beginning(fd.get(), bytes_max) : std::string();
}

// Reads /proc/PID/status, not stat: a reader of stat may have to wait (bounded_read.h).
std::optional<Process> read_process(pid_t pid) {
  const std::string status = read_status(pid);
  const char* state = field_of(status, "\nState:\t");
  if (state == nullptr) return std::nullopt;
  // The first number of NSsid is the one in the namespace of this /proc.
  return Process{.pid = pid,
                 .parent = number_of(status, "\nPPid:\t"),
                 .session = number_of(status, "\nNSsid:\t"),
                 .state = *state,
                 .threads = number_of(status, "\nThreads:\t")};
}

std::vector<Process> all_processes() {
  std::vector<Process> processes;
  if (!proc_shows_own_pids()) return processes;
  DIR* proc = ::opendir("/proc");
  if (proc == nullptr) return processes;
  while (const dirent* entry = ::readdir(proc)) {
    const auto pid = whole_number<pid_t>(entry->d_name);
    if (!pid) continue;
    if (const auto process = read_process(*pid)) processes.push_back(*process);
  }
  ::closedir(proc);
  return processes;
}

bool can_outlive(pid_t pid, int signal) {
  const std::string status = read_status(pid);
  return has_signal(status, "\nSigBlk:\t", signal) || has_signal(status, "\nSigIgn:\t", signal) ||
         has_signal(status, "\nSigCgt:\t", signal);
}

bool handles_signal(pid_t pid, int signal) {
  return has_signal(read_status(pid), "\nSigCgt:\t", signal) && !runs_a_shell(pid);
}

char process_state(pid_t pid) {
  const auto process = read_process(pid);
  return process ? process->state : '?';
}

std::string process_name(pid_t pid) {
  std::string name = read_proc_file(("/proc/" + std::to_string(pid) + "/comm").c_str(), 64);
  if (!name.empty() && name.back() == '\n') name.pop_back();
  for (char& c : name)
    if (c < ' ' || c > '~') c = '?';
  return name.empty() ? "?" : name;
}

std::vector<Process> descendants(pid_t root, const std::set<pid_t>& except) {
  const std::vector<Process> all = all_processes();
  std::set<pid_t> family{root};
  std::vector<Process> found;
  // Once pids have wrapped, a child can be before its parent in /proc: repeats until no change.
  for (bool grew = true; grew;) {
    grew = false;
    for (const Process& process : all) {
      if (except.contains(process.pid) || !family.contains(process.parent)) continue;
      if (!family.insert(process.pid).second) continue;
      grew = true;
      if (is_alive(process)) found.push_back(process);
    }
  }
  return found;
}

bool is_alive(const Process& process) {
  return (process.state != 'Z' && process.state != 'X') || process.threads > 1;
}

bool signal_process(const Process& process, int number) {
  // A process that has got this pid since the scan is in another session: a new process is in the
  // session of its parent. The parent cannot be compared, as it may have ended since the scan.
  const auto is_still_there = [&process] {
    const auto still = read_process(process.pid);
    return still && still->session == process.session;
  };
  return signal_if(process.pid, number, is_still_there);
}

std::uint64_t ticks_since_boot() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  const auto per_second = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
  return static_cast<std::uint64_t>(now.tv_sec) * per_second +
         static_cast<std::uint64_t>(now.tv_nsec) * per_second / 1'000'000'000U;
}

// The kernel lists children by the thread that started them.
std::optional<std::set<pid_t>> own_children() {
  std::set<pid_t> children;
  if (!proc_shows_own_pids()) return children;
  DIR* tasks = ::opendir("/proc/self/task");
  int error = tasks == nullptr ? errno : 0;
  while (const dirent* entry = error == 0 ? ::readdir(tasks) : nullptr)
    if (entry->d_name[0] != '.') error = add_children(entry->d_name, children);
  if (tasks != nullptr) ::closedir(tasks);
  if (error == 0) return children;
  if (lacks_files(error)) return std::nullopt;
  const pid_t self = ::getpid();  // The kernel has no CONFIG_PROC_CHILDREN.
  errno = 0;
  const std::vector<Process> all = all_processes();
  if (all.empty() && lacks_files(errno)) return std::nullopt;
  for (const Process& process : all)
    if (process.parent == self) children.insert(process.pid);
  return children;
}

std::vector<Process> processes_of_job(const JobSessions& sessions, const EnvironmentMark& mark) {
  const pid_t self = ::getpid();
  const pid_t own_session = ::getsid(0);
  const std::vector<Process> all = all_processes();
  std::vector<Process> found;
  std::set<pid_t> family;
  std::set<pid_t> more_sessions;  // The sessions of processes that were found.
  std::vector<Process> others;
  const auto add = [&](const Process& process) {
    found.push_back(process);
    family.insert(process.pid);
    if (process.session != own_session) more_sessions.insert(process.session);
  };
  std::vector<pid_t> deciding_pids;
  for (const Process& process : all)
    if (const auto session = sessions.find(process.session); session != sessions.end())
      deciding_pids.push_back(deciding_pid(process, session->second));
  const Starts starts = starts_of(deciding_pids);
  std::vector<pid_t> may_be_marked;
  for (const Process& process : all) {
    if (process.pid == self || !is_alive(process)) continue;
    const auto session = sessions.find(process.session);
    if (session != sessions.end() && is_in_session(process, session->second, starts)) {
      add(process);
      continue;
    }
    others.push_back(process);
    may_be_marked.push_back(process.pid);
  }
  const auto environs = read_each_in_time(may_be_marked, kReadLimit, [](pid_t pid) {
    return read_proc_file(("/proc/" + std::to_string(pid) + "/environ").c_str(), kEnvironBytesMax);
  });
  std::erase_if(others, [&](const Process& process) {
    const auto environ = environs.find(process.pid);
    const bool marked = environ != environs.end() && is_marked(environ->second, mark);
    if (marked) add(process);
    return marked;
  });
  for (std::size_t before = 0; before != found.size();) {
    before = found.size();
    std::erase_if(others, [&](const Process& process) {
      const bool belongs =
          family.contains(process.parent) || more_sessions.contains(process.session);
      if (belongs) add(process);
      return belongs;
    });
  }
  return found;
}

}  // namespace muster
