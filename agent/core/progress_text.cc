#include "agent/core/progress_text.h"

#include <algorithm>
#include <chrono>

#include "agent/core/signal_name.h"
#include "agent/core/worker_command.h"
#include "base/printable_text.h"

namespace muster {
namespace {

// A list with one value per worker of the node, in Python's notation.
template <typename ValueOf>
std::string list(int size, ValueOf value_of) {
  std::string text = "[";
  for (int i = 0; i < size; ++i)
    text.append(i == 0 ? "" : ", ").append(std::to_string(value_of(LocalRank{i})));
  return text + "]";
}

std::string whole_seconds(Duration duration) {
  return std::to_string(
             std::chrono::round<std::chrono::seconds>(std::max(duration, Duration{})).count()) +
         " s";
}

std::string in_parentheses(const std::string& reason) {
  return reason.empty() ? "" : " (" + printable_text(reason) + ")";
}

/// "rank 3", "ranks 0-3,8"; at most eight ranges.
std::string ranks_text(const std::vector<std::pair<int, int>>& ranges) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(ranges.size(), kShown); ++i) {
    const auto& [first, last] = ranges[i];
    text += (i == 0 ? "" : ",") + std::to_string(first);
    if (last != first) text += "-" + std::to_string(last);
  }
  if (ranges.size() > kShown) text += " and more";
  const bool is_one = ranges.size() == 1 && ranges[0].first == ranges[0].second;
  return (is_one ? "rank " : "ranks ") + text;
}

}  // namespace

std::vector<std::string> rendezvous_text(const AgentOptions& options, const RoundFacts& round) {
  const AssignedRanks& ranks = round.ranks;
  const auto all = [&options](auto value_of) { return list(options.local_world_size, value_of); };
  return {
      "[" + options.role + "] Rendezvous complete for workers. Result:",
      "  restart_count=" + std::to_string(round.restart_count),
      "  master_addr=" + round.master_addr,
      "  master_port=" + std::to_string(round.master_port),
      "  group_rank=" + std::to_string(round.group_rank.value),
      "  group_world_size=" + std::to_string(round.group_world_size),
      "  local_ranks=" + all([](LocalRank rank) { return rank.value; }),
      "  role_ranks=" + all([&ranks](LocalRank rank) { return ranks.role_rank(rank); }),
      "  global_ranks=" + all([&ranks](LocalRank rank) { return ranks.global_rank(rank).value; }),
      "  role_world_sizes=" + all([&ranks](LocalRank) { return ranks.role_world_size; }),
      "  global_world_sizes=" + all([&ranks](LocalRank) { return ranks.world_size; }),
      std::string("  event_log_handler=") + (options.events_on_console ? "console" : "null"),
  };
}

std::string restart_text(const AgentOptions& options, int restarts_left) {
  return "[" + options.role + "] Worker group FAILED. " + std::to_string(restarts_left) + "/" +
         std::to_string(options.max_restarts) + " attempts left; will restart worker group";
}

std::string failure_text(const AgentOptions& options, const AnnounceFailure& failure, int pid) {
  return "failed (exitcode: " + std::to_string(failure.exit.code()) +
         ") local_rank: " + std::to_string(failure.rank.value) + " (pid: " + std::to_string(pid) +
         ") " + failed_program_text(options) +
         (failure.exit.killed ? " (" + signal_name(failure.exit.status) + ")" : "");
}

std::string exit_barrier_text(Duration elapsed) {
  return "Done waiting for other agents. Elapsed: " +
         std::to_string(std::chrono::duration<double>(elapsed).count()) + " seconds";
}

std::string restarting_text(const AgentOptions& options, int restarts_left) {
  return std::string("restarting all workers of ") +
         (options.max_nodes > 1 ? "the job: " : "this node: ") + std::to_string(restarts_left - 1) +
         " of " + std::to_string(options.max_restarts) + " restarts left after this one";
}

std::string restart_by_policy_text(const AgentOptions& options) {
  return std::string("stopping all workers of ") +
         (options.max_nodes > 1 ? "the job" : "this node") +
         ": they are started again if --restart-policy has a restart left";
}

std::string restart_wait_text(Duration wait) {
  return "waiting for " + whole_seconds(wait) + " before the restart (--restart-policy)";
}

std::string left_behind_text(int pid) {
  return "Process " + std::to_string(pid) +
         " did not exit after SIGKILL: it is left behind (it waits in the kernel: uninterruptible "
         "I/O?)";
}

std::string forwarded_text(int signal, int workers) {
  const std::string received = "received " + signal_name(signal);
  if (workers < 0)
    return received + ", which every process of the job has got: not passed on; the job goes on";
  if (workers == 0)
    return received + ", which no worker here catches: not passed on; the job goes on";
  return received + ": passed on to " + std::to_string(workers) +
         (workers == 1 ? " worker" : " workers") + " (--signals-to-forward); the job goes on";
}

std::string death_signal_text(int signal) {
  return "Received " + std::to_string(signal) + " death signal (" + signal_name(signal) + ")";
}

std::string stopping_text(int signal, Duration timeout) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout).count();
  return death_signal_text(signal) + ": stopping the workers, SIGKILL after " +
         std::to_string(seconds) + " s; a second signal kills them at once";
}

std::string node_goes_text(const NodeGoes& goes, Duration left) {
  return "notice: this node goes in " + whole_seconds(goes.left) + in_parentheses(goes.reason) +
         ": in " + whole_seconds(left) + " workers are stopped that have not answered";
}

std::string notice_text(const WorkerNotice& notice, Duration left) {
  std::string who = notice.doomed ? "this node" : "a node of the job";
  if (!notice.doomed_ranks.empty()) who = ranks_text(notice.doomed_ranks);
  const bool goes_on = notice.follow != AfterNotice::Stop;
  return "notice: " + who + (who.starts_with("ranks") ? " go" : " goes") +
         in_parentheses(notice.reason) + ": the workers have " + whole_seconds(left) +
         " to save and to answer; then the job " +
         (goes_on ? "goes on without what goes" : "is stopped");
}

}  // namespace muster
