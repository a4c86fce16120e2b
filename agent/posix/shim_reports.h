// The shim's reports: functions that make one, with the present time, and functions that read one.
#pragma once

#include <signal.h>
#include <sys/types.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/leftovers.h"
#include "agent/core/worker_end.h"
#include "agent/posix/process_scan.h"
#include "agent/posix/shim_protocol.h"
#include "agent/posix/spawn.h"
#include "base/system/clock.h"

namespace muster {

/// The wall clock minus a clock that nobody can set, and that also counts suspended time.
inline std::int64_t clock_offset_ms() {
  timespec boot{};
  ::clock_gettime(CLOCK_BOOTTIME, &boot);
  return (wall_now().microseconds - boot.tv_sec * 1'000'000 - boot.tv_nsec / 1000) / 1000;
}

inline ShimReport start_failed(int worker, const SpawnResult& result) {
  return {.kind = ShimReport::Kind::StartFailed,
          .worker = worker,
          .error = result.error,
          .step = static_cast<int>(result.step),
          .wall_ms = wall_ms()};
}

inline ShimReport started(int worker, pid_t pid) {
  return {.kind = ShimReport::Kind::Started,
          .worker = worker,
          .pid = pid,
          .wall_ms = wall_ms(),
          .clock_offset_ms = clock_offset_ms()};
}

inline ShimReport exited(int worker, const siginfo_t& info) {
  return {.kind = ShimReport::Kind::Exited,
          .worker = worker,
          .pid = info.si_pid,
          .code = info.si_code,
          .status = info.si_status,
          .wall_ms = wall_ms(),
          .clock_offset_ms = clock_offset_ms()};
}

inline ShimReport worker_signalled(int worker, pid_t pid, int signal, bool can_outlive) {
  return {.kind = ShimReport::Kind::WorkerSignalled,
          .worker = worker,
          .pid = pid,
          .code = can_outlive ? 1 : 0,
          .status = signal,
          .wall_ms = wall_ms(),
          .clock_offset_ms = clock_offset_ms()};
}

inline ShimReport started_cold(int attempt, const std::string& reason) {
  ShimReport report{.kind = ShimReport::Kind::StartedCold, .count = attempt, .wall_ms = wall_ms()};
  reason.copy(report.text.data(), report.text.size() - 1);
  return report;
}

inline ShimReport zygote_ready(pid_t pid) {
  return {.kind = ShimReport::Kind::ZygoteReady, .pid = pid, .wall_ms = wall_ms()};
}

inline ShimReport zygote_memory(std::uint64_t bytes) {
  return {.kind = ShimReport::Kind::ZygoteMemory, .wall_ms = wall_ms(), .bytes = bytes};
}

inline ShimReport zygote_lost(const std::string& reason, bool is_replaced) {
  ShimReport report{
      .kind = ShimReport::Kind::ZygoteLost, .code = is_replaced ? 1 : 0, .wall_ms = wall_ms()};
  reason.copy(report.text.data(), report.text.size() - 1);
  return report;
}

/// `left`: a process that could not be killed, or 0.
inline ShimReport all_gone(pid_t left) {
  return {.kind = ShimReport::Kind::AllGone, .pid = left, .wall_ms = wall_ms()};
}

/// `workers`: how many got the signal from muster; nothing: all processes had it already.
inline ShimReport forwarded(int number, std::optional<int> workers) {
  return {.kind = ShimReport::Kind::Forwarded,
          .status = number,
          .count = workers.value_or(-1),
          .wall_ms = wall_ms()};
}

/// What is left of an attempt, when `stage` begins.
inline ShimReport leftovers(const std::vector<Process>& left, LeftoverStage stage,
                            Duration until_sigterm) {
  ShimReport report{
      .kind = ShimReport::Kind::Leftovers,
      .status = static_cast<int>(stage),
      .count = static_cast<int>(left.size()),
      .wall_ms = wall_ms(),
      .limit_ms = std::chrono::floor<std::chrono::milliseconds>(until_sigterm).count()};
  for (std::size_t i = 0; i < std::min(left.size(), report.left.size()); ++i) {
    report.left[i].pid = left[i].pid;
    const std::string name = process_name(left[i].pid);
    name.copy(report.left[i].name.data(), report.left[i].name.size() - 1);
  }
  return report;
}

/// leftover_text() of the report, with the commands that are in `commands`.
inline std::string text_about_leftovers(const ShimReport& report,
                                        const std::map<pid_t, std::string>& commands = {}) {
  std::vector<Leftover> named;
  for (const LeftProcess& process : report.left) {
    if (process.pid == 0) break;
    const auto command = commands.find(process.pid);
    named.push_back(
        {process.pid, command != commands.end() ? command->second : process.name.data()});
  }
  return leftover_text(static_cast<LeftoverStage>(report.status), named, report.count,
                       std::chrono::milliseconds(report.limit_ms));
}

inline WorkerExit exit_of(const ShimReport& exited) {
  return {.killed = exited.code != CLD_EXITED,
          .status = exited.status,
          .core_dumped = exited.code == CLD_DUMPED};
}

inline void record_start(WorkerEnd& end, const ShimReport& started) {
  end.pid = started.pid;
  end.clock.add(started.clock_offset_ms);
}

inline void record_exit(WorkerEnd& end, const ShimReport& exited, int order) {
  end.clock.add(exited.clock_offset_ms);
  end.exit = exit_of(exited);
  end.order = order;
  end.died_ms = exited.wall_ms;
}

inline void record_sent_signal(WorkerEnd& end, const ShimReport& signalled) {
  end.clock.add(signalled.clock_offset_ms);
  end.record_signal(signalled.status, signalled.code != 0, signalled.wall_ms);
}

}  // namespace muster
