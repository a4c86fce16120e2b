#include "agent/io/agent_lines.h"

#include <chrono>

#include <spdlog/spdlog.h>

#include "agent/core/progress_text.h"
#include "agent/core/signal_name.h"

namespace muster {

bool has_workers(Supervisor::State state) {
  using State = Supervisor::State;
  return state == State::Starting || state == State::Running || state == State::Stopping;
}

void log_signal(int number, const SignalFacts& facts) {
  using State = Supervisor::State;
  const State before = facts.before;
  const bool stopping = has_workers(before);
  if (before != State::Idle && before != State::Joining)
    spdlog::warn("Received {} death signal", number);
  if (stopping && facts.is_first)
    spdlog::warn("{}", stopping_text(number, facts.shutdown_timeout));
  else if (stopping)
    spdlog::warn("received {} again: killing the workers", signal_name(number));
  else if (before == State::Leaving)
    spdlog::warn("Got termination signal: {}: the other nodes are not waited for", number);
}

void log_left_behind(pid_t pid) {
  spdlog::error(
      "Process {} did not exit after SIGKILL: it is left behind (it waits in the kernel: "
      "uninterruptible I/O?)",
      pid);
}

void log_failure(const AgentOptions& options, const AnnounceFailure& failure, int pid) {
  spdlog::error("{}", failure_text(options, failure, pid));
  if (failure.restarts_left == 0) return;
  spdlog::info("{}", restart_text(options, failure.restarts_left));
  spdlog::warn("{}", restarting_text(options, failure.restarts_left));
}

std::string failed_rank_text(GlobalRank rank, const WorkerExit& exit) {
  return "rank " + std::to_string(rank.value) + " " + exit_text(exit);
}

std::string session_end_text(const SessionEnd& end) {
  return end.failed_node.empty() ? end.why : end.failed_node + ": " + end.why;
}

std::string exit_barrier_text(Duration elapsed) {
  return "Done waiting for other agents. Elapsed: " +
         std::to_string(std::chrono::duration<double>(elapsed).count()) + " seconds";
}

}  // namespace muster
