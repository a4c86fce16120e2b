#include "launcher/rank_plans.h"

#include <algorithm>
#include <set>

#include "agent/core/log_plan.h"
#include "agent/core/numa_plan.h"
#include "agent/core/worker_command.h"
#include "agent/core/worker_env.h"

namespace muster {
namespace {

AttemptLogPlan plan_files(const AgentOptions& options) {
  if (options.log.specs) {
    const std::string chosen = "<chosen by the plug-in " + options.log.specs->name + ">";
    const StreamPlan stream{StreamTarget::File, chosen, false};
    AttemptLogPlan plan;
    for (int i = 0; i < options.local_world_size; ++i)
      plan.workers.push_back(
          {.local_rank = {i}, .dir = {}, .error_file = chosen, .out = stream, .err = stream});
    return plan;
  }
  const std::string base = options.log.dir.empty() ? "<temporary directory>" : options.log.dir;
  return plan_logs(options, {.attempt_dir = base + "/" + run_dir_name(options.run_id, "<unique>") +
                                            "/" + attempt_dir_name(0, {})});
}

// What the worker has and we have not, or have otherwise.
std::map<std::string, std::string> additions(const std::vector<std::string>& inherited,
                                             const std::vector<std::string>& environment) {
  const std::set<std::string> ours(inherited.begin(), inherited.end());
  std::map<std::string, std::string> added;
  for (const std::string& variable : environment) {
    const std::size_t equals = variable.find('=');
    if (!ours.contains(variable))
      added.emplace(variable.substr(0, equals), variable.substr(equals + 1));
  }
  added["MASTER_PORT"] = "<chosen at the start>";
  added["MUSTER_JOB"] = "<chosen at the start>";
  return added;
}

std::string file_of(const StreamPlan& stream) {
  switch (stream.target) {
    case StreamTarget::File:
      return stream.file;
    case StreamTarget::Discard:
      return "/dev/null";
    case StreamTarget::Inherit:
    case StreamTarget::Tap:
      break;
  }
  return {};
}

}  // namespace

Checked<std::vector<RankPlan>> plan_ranks(const AgentOptions& options,
                                          const std::vector<std::string>& inherited) {
  const int workers = options.local_world_size;
  const std::string& address = options.rendezvous.local_addr;
  const RoundFacts round{.ranks = {.world_size = workers, .role_world_size = workers},
                         .master_addr = address.empty() ? "127.0.0.1" : address};
  std::vector<RankPlan> plans;
  for (const WorkerLogPlan& log : plan_files(options).workers) {
    const auto rank = static_cast<std::size_t>(log.local_rank.value);
    const auto environment =
        worker_env(inherited, options, round, {log.local_rank, log.error_file, "unknown"});
    if (!environment) return FlagError{environment.error().text};
    plans.push_back({.local_rank = log.local_rank.value,
                     .global_rank = log.local_rank.value,
                     .command = worker_command(options, log.local_rank),
                     .environment = additions(inherited, *environment),
                     .stdout_file = file_of(log.out),
                     .stderr_file = file_of(log.err),
                     .error_file = log.error_file,
                     .cpus = options.cpus.empty() ? std::string() : cpu_list(options.cpus[rank])});
  }
  return plans;
}

}  // namespace muster
