// The shim's reports about workers: functions that make one, with the present time, and functions
// that read one.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include "agent/core/worker_end.h"
#include "agent/posix/clocks.h"
#include "agent/posix/shim_protocol.h"
#include "agent/posix/spawn.h"

namespace muster {

inline ShimReport start_failed(int worker, const SpawnResult& result) {
  return {.kind = ShimReport::Kind::StartFailed,
          .worker = worker,
          .error = result.error,
          .step = static_cast<int>(result.step),
          .wall_ns = wall_ns()};
}

inline ShimReport started(int worker, pid_t pid) {
  return {.kind = ShimReport::Kind::Started,
          .worker = worker,
          .pid = pid,
          .wall_ns = wall_ns(),
          .clock_offset_ms = clock_offset_ms()};
}

inline ShimReport exited(int worker, const siginfo_t& info) {
  return {.kind = ShimReport::Kind::Exited,
          .worker = worker,
          .pid = info.si_pid,
          .code = info.si_code,
          .status = info.si_status,
          .wall_ns = wall_ns(),
          .clock_offset_ms = clock_offset_ms()};
}

inline ShimReport worker_signalled(int worker, pid_t pid, int signal, bool can_outlive) {
  return {.kind = ShimReport::Kind::WorkerSignalled,
          .worker = worker,
          .pid = pid,
          .code = can_outlive ? 1 : 0,
          .status = signal,
          .wall_ns = wall_ns(),
          .clock_offset_ms = clock_offset_ms()};
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
  end.died_ms = exited.wall_ns / 1'000'000;
}

inline void record_sent_signal(WorkerEnd& end, const ShimReport& signalled) {
  end.clock.add(signalled.clock_offset_ms);
  end.record_signal(signalled.status, signalled.code != 0, signalled.wall_ns / 1'000'000);
}

}  // namespace muster
