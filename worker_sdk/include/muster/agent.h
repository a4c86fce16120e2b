// The worker channel: a worker reports its progress to its agent, and learns that it will be
// stopped.
//
// Needs no LibTorch. If MUSTER_WORKER_CHANNEL is not set (another launcher, or no launcher), the
// functions do nothing, so a program can always call them. docs/worker_channel.md describes the
// protocol, and how a Python script uses it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace muster {

/// Tells the agent that this process makes progress. `step` is shown to people, and may be any
/// number that grows. The function may be called in every step: it sends at most ten reports a
/// second. It never waits and never fails, even if the agent has ended or does not read. While the
/// agent does not read, reports may be dropped, but the calls of the other functions are not lost.
/// Any rank and any thread may call it.
///
/// The first call is a promise of further reports. With --hang-timeout, a program that has reported
/// progress and then sends no report for that time counts as hanging. This holds even if it uses
/// the CPU, as NCCL does while it waits.
void report_progress(std::int64_t step);

/// Withdraws the promise of report_progress() until the next report. Call it before an evaluation
/// or a checkpoint that may take longer than --hang-timeout. Any rank and any thread may call it.
void end_progress();

/// The deadline by which this process should have saved its state and ended. Empty if the agent has
/// not sent a notice that the process will be stopped (preemption, or a signal to the launcher).
/// The last notice counts. The function reads from the socket without waiting, and is fast enough
/// for every step. Any rank and any thread may call it.
///
/// The first call is a promise that the program ENDS BY ITSELF after a notice. So the agent sends
/// no SIGTERM with the notice, because SIGTERM could end the process while it saves. The agent
/// sends SIGTERM at the deadline, and SIGKILL a tenth of --shutdown-timeout later. Call this
/// function once before the training begins: a process that has never called it gets SIGTERM at
/// once, with the notice.
///
/// The ranks receive the notice at different times. Before a collective operation such as a
/// checkpoint, the ranks must agree: all_reduce (max) whether a rank has a deadline.
std::optional<std::chrono::steady_clock::time_point> preemption_deadline();

}  // namespace muster
