// The worker channel: a worker reports its progress to its agent, and learns that it will be
// stopped.
//
// Needs no LibTorch. If MUSTER_WORKER_CHANNEL is not set (another launcher, or no launcher), the
// functions do nothing, so a program can always call them. No function waits, and none fails if the
// agent has ended or does not read. Any rank and any thread may call any of them.
// docs/worker_channel.md describes the protocol, and the Python module with the same names.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace muster {

/// The agent will stop this process.
struct AgentNotice {
  /// By this time the process should have saved its state, and have called saved() or ended.
  std::chrono::steady_clock::time_point deadline{};
  std::string reason = {};  // For people. Empty: an older muster.
  /// The node of this process goes. False: another node goes, or the job is started again.
  bool doomed = true;
  /// The first and the last global rank of each range that goes. Only a notice for the whole job
  /// has ranks.
  std::vector<std::pair<int, int>> doomed_ranks = {};
  /// "stop": the job ends. "shrink": the job goes on without the doomed ranks. "restart": the job
  /// goes on with all of them. Empty: an older muster.
  std::string follow = {};
  std::int64_t id = 0;  // Grows with each notice of this agent. 0: an older muster.
};

/// Whether an agent of muster reads what this process reports.
bool available();

/// Tells the agent that this process makes progress. `step` is shown to people, and may be any
/// number that grows. The function may be called in every step: it sends at most ten reports a
/// second. While the agent does not read, reports may be dropped, but the calls of the other
/// functions are not lost.
///
/// The first call is a promise of further reports. With --hang-timeout, a program that has reported
/// progress and then sends no report for that time counts as hanging. This holds even if it uses
/// the CPU, as NCCL does while it waits.
void progress(std::int64_t step);

/// Withdraws the promise of progress() until the next report. Call it before an evaluation or a
/// checkpoint that may take longer than --hang-timeout.
void progress_end();

/// Promises that the program ENDS BY ITSELF after a notice. So the agent sends no SIGTERM with the
/// notice, because SIGTERM could end the process while it saves. The agent sends SIGTERM at the
/// deadline, and SIGKILL a tenth of --shutdown-timeout later. Call this function once before the
/// training begins: a process that has never called it gets SIGTERM at once when it is stopped.
void ends_itself();

/// The last notice. Empty if there was none. The function reads from the socket without waiting,
/// and is fast enough for every step.
///
/// The ranks receive the notice at different times. Before a collective operation such as a
/// checkpoint, the ranks must agree: all_reduce (max) whether a rank has a notice.
std::optional<AgentNotice> notice();

/// The answer to the last notice: this process has saved its work, and may be stopped. When all
/// ranks of the job have answered a notice for the whole job, nobody waits for its deadline. If
/// the process then ends with 0, it has stopped for the notice: the job is not done. May be called
/// again.
///
/// May be called before this process has its notice, if another rank has one: the ranks save
/// together, and this node's notice may still be on its way. The answer then counts if this process
/// ends with 0. Without any notice in the job it has no effect, but the node waits up to 30 s for
/// one before it has finished.
void saved();

/// MUSTER_GENERATION: a number that grows with every round of the run. 0 if the launcher has none.
std::int64_t generation();

// --- older names ---------------------------------------------------------------------------------

/// progress()
void report_progress(std::int64_t step);
/// progress_end()
void end_progress();
/// The deadline of notice(). The first call also makes the promise of ends_itself().
std::optional<std::chrono::steady_clock::time_point> preemption_deadline();

}  // namespace muster
