// Decides from the kernel's files whether the OOM killer killed a worker, and describes the
// evidence in a sentence for the failure report.
//
// Pure: the texts of the files in, evidence out; agent/io/oom_watch.h reads the files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

/// The counter oom_kill from memory.events (v2) or memory.oom_control (v1). Both files have lines
/// "name value".
std::optional<std::int64_t> oom_kill_count(std::string_view text);

/// A record of /dev/kmsg: "priority,sequence,microseconds,flags;text".
struct KernelMessage {
  std::int64_t time_us = 0;  // Since the boot; roughly CLOCK_MONOTONIC.
  std::string_view text;
};
std::optional<KernelMessage> kernel_message(std::string_view record);
/// The pid in a message with "Killed process PID (name) …". Any text may come before these words.
std::optional<int> oom_victim(std::string_view text);

/// The facts that were collected after workers died of a SIGKILL that muster did not send.
struct OomFacts {
  std::string cgroup_dir;  // The counter's directory, for people. Empty: no counter.
  std::int64_t kills = 0;  // How much the counter has risen since the workers were started.
  std::optional<std::int64_t> limit_bytes;  // The memory limit of the cgroup.
  std::vector<std::string> kernel_lines;  // Kernel messages about processes killed in this attempt.
};

/// One sentence for the worker `pid`. Empty: no evidence that the OOM killer killed it.
/// `unexplained`: the number of workers that died of such a SIGKILL. If the counter rose by less,
/// it does not show which of them were killed.
std::string oom_evidence(const OomFacts& facts, int pid, int unexplained);

}  // namespace muster
