// Was it the kernel's OOM killer? From what the kernel says to a sentence for the failure report.
//
// Pure: texts of the kernel's files in, evidence out; agent/io/oom_watch.h reads the files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

/// The memory controller's directory of a process: "/job/step" of a line "0::/job/step" (cgroup v2)
/// or "4:memory:/job/step" (v1, which goes first where both are there) of /proc/PID/cgroup.
struct MemoryCgroup {
  std::string path;
  bool is_v2 = false;
  bool operator==(const MemoryCgroup&) const = default;
};
std::optional<MemoryCgroup> memory_cgroup(std::string_view proc_cgroup);

/// The counter oom_kill: of memory.events (v2) or memory.oom_control (v1), both lines "name value".
std::optional<std::int64_t> oom_kill_count(std::string_view text);

/// A record of /dev/kmsg: "priority,sequence,microseconds,flags;text".
struct KernelMessage {
  std::int64_t time_us = 0;  // Since the boot, roughly CLOCK_MONOTONIC.
  std::string_view text;
};
std::optional<KernelMessage> kernel_message(std::string_view record);
/// The process that "Killed process PID (name) …" names, with whatever stands before it.
std::optional<int> oom_victim(std::string_view text);

/// What is known after workers died of a SIGKILL that was not muster's.
struct OomFacts {
  std::string cgroup_dir;                   // Where the counter is, for people; empty: no counter.
  std::int64_t kills = 0;                   // By how much it rose since the workers were started.
  std::optional<std::int64_t> limit_bytes;  // Of the cgroup.
  std::vector<std::string> kernel_lines;    // About killed processes, of this attempt.
};

/// One sentence for a worker `pid`; empty: no evidence against the OOM killer. `unexplained`: how
/// many workers died so: a counter that rose by less does not say which of them it was.
std::string oom_evidence(const OomFacts& facts, int pid, int unexplained);

}  // namespace muster
