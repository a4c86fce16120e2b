#include "agent/posix/process_scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

namespace muster {
namespace {

constexpr std::size_t kEnvironBytesMax = 8 << 20;  // Far above the kernel's usual 2 MiB.

/// The beginning of a file, up to `bytes_max`; empty when it cannot be read.
std::string read_file(const char* path, std::size_t bytes_max) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  std::string text;
  std::array<char, 16384> chunk;
  while (text.size() < bytes_max) {
    const ssize_t n = ::read(fd, chunk.data(), chunk.size());
    if (n <= 0) break;
    text.append(chunk.data(), static_cast<std::size_t>(n));
  }
  ::close(fd);
  return text;
}

std::optional<Process> read_stat(pid_t pid) {
  std::array<char, 64> path;
  std::snprintf(path.data(), path.size(), "/proc/%d/stat", pid);
  const std::string text = read_file(path.data(), 4096);
  // The name, in parentheses, may hold anything: the fields begin after the last ')'.
  const std::size_t close = text.rfind(')');
  if (close == std::string::npos) return std::nullopt;
  Process process{.pid = pid};
  int group = 0;
  if (std::sscanf(text.c_str() + close + 1, " %c %d %d %d", &process.state, &process.parent, &group,
                  &process.session) != 4)
    return std::nullopt;
  return process;
}

bool is_alive(const Process& process) {
  return process.state != 'Z' && process.state != 'X';
}

bool is_marked(pid_t pid, const EnvironmentMark& mark) {
  std::array<char, 64> path;
  std::snprintf(path.data(), path.size(), "/proc/%d/environ", pid);
  const std::string text = read_file(path.data(), kEnvironBytesMax);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\0', at), text.size());
    if (mark(std::string_view(text).substr(at, end - at))) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

std::vector<Process> all_processes() {
  std::vector<Process> processes;
  DIR* proc = ::opendir("/proc");
  if (proc == nullptr) return processes;
  while (const dirent* entry = ::readdir(proc)) {
    pid_t pid = 0;
    const char* end = entry->d_name + std::strlen(entry->d_name);
    const auto [last, error] = std::from_chars(entry->d_name, end, pid);
    if (error != std::errc{} || last != end) continue;
    if (const auto process = read_stat(pid)) processes.push_back(*process);
  }
  ::closedir(proc);
  return processes;
}

bool can_outlive(pid_t pid, int signal) {
  std::array<char, 64> path;
  std::snprintf(path.data(), path.size(), "/proc/%d/status", pid);
  const std::string text = read_file(path.data(), 16384);
  for (const std::string_view name : {"\nSigBlk:\t", "\nSigIgn:\t", "\nSigCgt:\t"}) {
    const std::size_t at = text.find(name);
    if (at == std::string::npos) continue;
    const unsigned long long set = std::strtoull(text.c_str() + at + name.size(), nullptr, 16);
    if ((set >> (signal - 1) & 1U) != 0) return true;
  }
  return false;
}

char process_state(pid_t pid) {
  const auto process = read_stat(pid);
  return process ? process->state : '?';
}

std::vector<Process> descendants(pid_t root, const std::set<pid_t>& except) {
  const std::vector<Process> all = all_processes();
  std::set<pid_t> family{root};
  std::vector<Process> found;
  // A child may come before its parent in /proc's order once pids have wrapped: until no change.
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

std::set<pid_t> own_children() {
  std::set<pid_t> children;
  const pid_t self = ::getpid();
  std::array<char, 64> path;
  std::snprintf(path.data(), path.size(), "/proc/self/task/%d/children", self);
  if (::access(path.data(), R_OK) != 0) {  // A kernel without CONFIG_PROC_CHILDREN.
    for (const Process& process : all_processes())
      if (process.parent == self) children.insert(process.pid);
    return children;
  }
  const std::string text = read_file(path.data(), 1 << 20);
  const char* at = text.c_str();
  for (char* end = nullptr;; at = end) {
    const long pid = std::strtol(at, &end, 10);
    if (end == at) return children;
    children.insert(static_cast<pid_t>(pid));
  }
}

std::vector<Process> processes_of_job(std::set<pid_t> sessions, const EnvironmentMark& mark) {
  const pid_t self = ::getpid();
  const pid_t own_session = ::getsid(0);
  std::vector<Process> found;
  std::set<pid_t> family;
  std::vector<Process> others;
  const auto take = [&](const Process& process) {
    found.push_back(process);
    family.insert(process.pid);
    if (process.session != own_session) sessions.insert(process.session);
  };
  for (const Process& process : all_processes()) {
    if (process.pid == self || !is_alive(process)) continue;
    if (sessions.contains(process.session) || is_marked(process.pid, mark))
      take(process);
    else
      others.push_back(process);
  }
  for (std::size_t before = 0; before != found.size();) {
    before = found.size();
    std::erase_if(others, [&](const Process& process) {
      const bool belongs = family.contains(process.parent) || sessions.contains(process.session);
      if (belongs) take(process);
      return belongs;
    });
  }
  return found;
}

}  // namespace muster
