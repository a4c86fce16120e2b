#include "agent/posix/process_activity.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "agent/core/stat_text.h"
#include "agent/posix/bounded_read.h"
#include "agent/posix/process_scan.h"

namespace muster {
namespace {

constexpr std::size_t kFileBytesMax = 64 << 10;
// How long the caller waits for one process that cannot be read.
constexpr std::chrono::milliseconds kSampleLimit{100};
constexpr std::chrono::milliseconds kProgramLimit{1000};
constexpr std::chrono::milliseconds kTableLimit{5000};
constexpr std::size_t kThreadsMax = 1000;  // The most threads of one process that are shown.

std::string read_file(const std::string& path) {
  return read_proc_file(path.c_str(), kFileBytesMax);
}

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' '))
    text.pop_back();
  return text;
}

std::chrono::nanoseconds from_ticks(unsigned long long ticks) {
  static const long per_second = ::sysconf(_SC_CLK_TCK);
  return std::chrono::nanoseconds(ticks * 1'000'000'000ULL /
                                  static_cast<unsigned long long>(per_second));
}

/// In the /proc of another pid namespace the number is another process: then a folder that never
/// exists, so that every read fails as without /proc.
std::string folder_of(pid_t pid) {
  return "/proc/" + std::to_string(proc_shows_own_pids() ? pid : 0);
}

std::set<pid_t> family_in(const std::vector<Process>& all, pid_t leader) {
  std::set<pid_t> family{leader};
  // Once pids have wrapped, a child can be before its parent in /proc: repeats until no change.
  for (bool grew = true; grew;) {
    grew = false;
    for (const Process& process : all)
      if (is_alive(process) && (process.session == leader || family.contains(process.parent)))
        grew = family.insert(process.pid).second || grew;
  }
  return family;
}

std::vector<pid_t> thread_ids(pid_t pid) {
  std::vector<pid_t> ids;
  DIR* folder = ::opendir((folder_of(pid) + "/task").c_str());
  if (folder == nullptr) return ids;
  while (const dirent* entry = ::readdir(folder))
    if (const long id = std::strtol(entry->d_name, nullptr, 10); id > 0)
      ids.push_back(static_cast<pid_t>(id));
  ::closedir(folder);
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::string read_thread_table(pid_t pid) {
  std::string table;
  const std::vector<pid_t> ids = thread_ids(pid);
  for (const pid_t id : ids) {
    const std::string folder = folder_of(pid) + "/task/" + std::to_string(id);
    const StatText stat = parse_stat(read_file(folder + "/stat"));
    const auto cpu_ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(from_ticks(stat.own_ticks)).count();
    std::string waits_in = trimmed(read_file(folder + "/wchan"));
    if (waits_in.empty() || waits_in == "0") waits_in = "-";
    std::string call = trimmed(read_file(folder + "/syscall"));
    if (call.empty()) call = "not readable";
    table.append("thread ").append(std::to_string(id)).append(" ");
    table.append(trimmed(read_file(folder + "/comm"))).append(": state ").append(1, stat.state);
    table.append(", CPU time ").append(std::to_string(cpu_ms)).append(" ms, waits in ");
    table.append(waits_in).append(", system call ").append(call).append("\n");
    const std::string stack = read_file(folder + "/stack");
    for (std::size_t at = 0; at < stack.size();) {
      const std::size_t end = std::min(stack.find('\n', at), stack.size());
      table.append("    ").append(stack, at, end - at).append("\n");
      at = end + 1;
    }
    if (id == ids[std::min(ids.size(), kThreadsMax) - 1]) break;
  }
  if (ids.size() > kThreadsMax)
    table += "and " + std::to_string(ids.size() - kThreadsMax) + " threads more\n";
  return table.empty() ? "it has ended\n" : table;
}

}  // namespace

std::vector<WorkerActivity> family_activity(const std::map<LocalRank, pid_t>& workers) {
  const std::vector<Process> all = all_processes();
  std::map<LocalRank, std::set<pid_t>> families;
  std::vector<pid_t> all_pids;
  for (const auto& [rank, leader] : workers) {
    const std::set<pid_t>& family = families[rank] = family_in(all, leader);
    all_pids.insert(all_pids.end(), family.begin(), family.end());
  }
  const auto texts = read_each_in_time(all_pids, kSampleLimit, [](pid_t pid) {
    return read_file(folder_of(pid) + "/stat") + read_file(folder_of(pid) + "/io");
  });
  std::vector<WorkerActivity> activities;
  for (const auto& [rank, family] : families) {
    WorkerActivity& sum = activities.emplace_back(WorkerActivity{.rank = rank});
    for (const pid_t pid : family) {
      const auto text = texts.find(pid);
      sum.complete = sum.complete && text != texts.end();
      if (text == texts.end()) continue;
      const StatText stat = parse_stat(text->second);
      sum.cpu += from_ticks(stat.own_ticks + stat.children_ticks);
      sum.bytes_written += bytes_written_in(text->second);
      // Each member counts: a leader in vfork() cannot stop until its child executes or ends.
      sum.stopped = sum.stopped || stat.state == 'T' || stat.state == 't';
    }
  }
  return activities;
}

std::vector<pid_t> family_of(pid_t leader) {
  std::set<pid_t> family = family_in(all_processes(), leader);
  family.erase(leader);
  return {family.begin(), family.end()};
}

std::string executable_of(pid_t pid) {
  const auto read = [path = folder_of(pid) + "/exe"] {
    std::array<char, 4096> target;
    const ssize_t n = ::readlink(path.c_str(), target.data(), target.size());
    return n > 0 ? std::string(target.data(), static_cast<std::size_t>(n)) : std::string();
  };
  return read_in_time(pid, kProgramLimit, read).value_or(std::string());
}

std::string program_text(pid_t pid) {
  return executable_of(pid) + " (" + trimmed(read_file(folder_of(pid) + "/comm")) + ")";
}

std::string thread_table(pid_t pid) {
  return read_in_time(pid, kTableLimit, [pid] { return read_thread_table(pid); })
      .value_or("/proc does not answer: it executes a program and waits for storage\n");
}

}  // namespace muster
