#include "agent/core/worker_env.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/python_text.h"

namespace muster {
namespace {

constexpr std::string_view kJob = "MUSTER_JOB";
constexpr const char* kChannel = "MUSTER_WORKER_CHANNEL";
// The tokens of the jobs around this one, the outermost first, joined with ':'.
constexpr std::string_view kOuterJobs = "MUSTER_OUTER_JOBS";
constexpr std::string_view kAsyncErrors = "TORCH_NCCL_ASYNC_ERROR_HANDLING";

constexpr const char* kGeneration = "MUSTER_GENERATION";

constexpr const char* kErrorFile = "TORCHELASTIC_ERROR_FILE";

Variables parse(const std::vector<std::string>& entries) {
  Variables result;
  std::set<std::string, std::less<>> seen;
  for (const std::string& entry : entries) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos) continue;
    std::string name = entry.substr(0, equals);
    if (seen.insert(name).second) result.emplace_back(std::move(name), entry.substr(equals + 1));
  }
  return result;
}

std::optional<std::string> find(const Variables& variables, std::string_view name) {
  const auto found = std::find_if(variables.begin(), variables.end(),
                                  [name](const auto& variable) { return variable.first == name; });
  if (found == variables.end()) return std::nullopt;
  return found->second;
}

// The device that worker `local_rank` sees as its only one. An empty list counts as one empty
// entry, as in torchrun. The launcher has made sure that the list is long enough.
std::string visible_device(const std::optional<std::string>& devices, LocalRank local_rank) {
  if (!devices) return std::to_string(local_rank.value);
  const std::vector<std::string_view> entries = split(*devices, ',');
  const auto index = static_cast<std::size_t>(local_rank.value);
  MUSTER_CHECK(index < entries.size());
  return std::string(strip(entries[index]));
}

Variables identity(const AgentOptions& options, const RoundFacts& round,
                   const WorkerIdentity& worker) {
  const LocalRank local = worker.local_rank;
  const auto text = [](int number) { return std::to_string(number); };
  return {
      {"LOCAL_RANK", text(options.virtual_local_rank ? 0 : local.value)},
      {"RANK", text(round.ranks.global_rank(local).value)},
      {"GROUP_RANK", text(round.group_rank.value)},
      {"ROLE_RANK", text(round.ranks.role_rank(local))},
      {"ROLE_NAME", options.role},
      {"LOCAL_WORLD_SIZE", text(options.local_world_size)},
      {"WORLD_SIZE", text(round.ranks.world_size)},
      {"GROUP_WORLD_SIZE", text(round.group_world_size)},
      {"ROLE_WORLD_SIZE", text(round.ranks.role_world_size)},
      {"MASTER_ADDR", round.master_addr},
      {"MASTER_PORT", text(round.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", text(round.restart_count)},
      {"TORCHELASTIC_MAX_RESTARTS", text(options.max_restarts)},
      {"TORCHELASTIC_RUN_ID", options.run_id},
      {"TORCHELASTIC_USE_AGENT_STORE", round.use_agent_store ? "True" : "False"},
      {kErrorFile, worker.error_file},
      {"TORCHELASTIC_SIGNALS_TO_HANDLE", options.signals_to_handle_text},
      {std::string(kJob), worker.job_token},
  };
}

// The tokens of the launchers around this one, without its own: a worker may itself be a muster.
std::string outer_jobs(const Variables& inherited, std::string_view own_token) {
  std::string outer = find(inherited, kOuterJobs).value_or("");
  const std::string job = find(inherited, kJob).value_or("");
  if (job.empty() || job == own_token) return outer;
  return outer.empty() ? job : outer + ":" + job;
}

// All variables that differ from what the worker inherits.
Variables own_variables(const Variables& before, const AgentOptions& options,
                        const RoundFacts& round, const WorkerIdentity& worker) {
  MUSTER_CHECK(worker.local_rank.value >= 0 && worker.local_rank.value < options.local_world_size);
  Variables ours = identity(options, round, worker);
  ours.emplace_back(kChannel, worker.channel);
  ours.emplace_back(kGeneration,
                    round.generation > 0 ? std::to_string(round.generation) : std::string());
  if (!find(before, kAsyncErrors)) ours.emplace_back(kAsyncErrors, "1");
  if (options.set_omp_num_threads && !find(before, "OMP_NUM_THREADS"))
    ours.emplace_back("OMP_NUM_THREADS", "1");
  if (options.virtual_local_rank) {
    const std::string_view list =
        variable_of_devices(options, find(before, kHipVisibleDevices).value_or(""));
    const std::string device = visible_device(find(before, list), worker.local_rank);
    ours.emplace_back(kCudaVisibleDevices, device);
    if (list == kHipVisibleDevices) ours.emplace_back(kHipVisibleDevices, device);
  }
  std::string outer = outer_jobs(before, worker.job_token);
  // NODE_RANK is not torchrun's; Lightning and others need it. A value that the user or the
  // scheduler has set stays. A value of a muster around this one belongs to another job.
  if (!outer.empty() || !find(before, "NODE_RANK"))
    ours.emplace_back("NODE_RANK", std::to_string(round.group_rank.value));
  if (!outer.empty()) ours.emplace_back(kOuterJobs, std::move(outer));
  return ours;
}

void apply(const EnvironmentChanges& changes, Variables& variables) {
  std::erase_if(variables, [&changes](const auto& variable) {
    const auto& unset = changes.unset;
    return std::find(unset.begin(), unset.end(), variable.first) != unset.end() ||
           find(changes.set, variable.first);
  });
  variables.insert(variables.end(), changes.set.begin(), changes.set.end());
}

}  // namespace

std::string_view variable_of_devices(const AgentOptions& options, std::string_view hip_devices) {
  const bool is_chosen = options.worker_environment.contains(std::string(kCudaVisibleDevices));
  return hip_devices.empty() || is_chosen ? kCudaVisibleDevices : kHipVisibleDevices;
}

std::vector<std::string> inherited_by_workers(std::vector<std::string> environment,
                                              const AgentOptions& options) {
  const auto& overrides = options.worker_environment;
  std::erase_if(environment, [&overrides](const std::string& variable) {
    return overrides.contains(variable.substr(0, variable.find('=')));
  });
  for (const auto& [name, value] : overrides)
    environment.push_back(std::string(name).append("=").append(value));
  return environment;
}

std::vector<std::string> worker_env(const std::vector<std::string>& inherited,
                                    const AgentOptions& options, const RoundFacts& round,
                                    const WorkerIdentity& worker) {
  const Variables before = parse(inherited);
  Variables ours = own_variables(before, options, round, worker);
  apply(worker.changes, ours);

  std::vector<std::string> result;
  const auto add = [&result](const std::string& name, const std::string& value) {
    result.emplace_back(name).append("=").append(value);
  };
  for (const auto& [name, value] : before)
    if (!find(ours, name)) add(name, value);
  for (const auto& [name, value] : ours)
    if ((name != kChannel && name != kGeneration) || !value.empty()) add(name, value);
  return result;
}

Variables announced_env(const std::vector<std::string>& inherited, const AgentOptions& options,
                        const RoundFacts& round, LocalRank local_rank) {
  const Variables before = parse(inherited);
  Variables ours = own_variables(before, options, round, {local_rank, "", ""});
  // torchrun always lists these two among a worker's own variables, even if they were inherited. It
  // does not list the variables that are erased below.
  for (const std::string_view name : {kAsyncErrors, std::string_view("OMP_NUM_THREADS")})
    if (auto value = find(before, name); value && !find(ours, name))
      ours.emplace_back(name, *std::move(value));
  std::erase_if(ours, [](const auto& variable) {
    return variable.first.starts_with("MUSTER_") || variable.first == kErrorFile ||
           variable.first == "TORCHELASTIC_SIGNALS_TO_HANDLE";
  });
  return ours;
}

bool marks_job(std::string_view variable, std::string_view job_token) {
  const std::size_t equals = variable.find('=');
  if (equals == std::string_view::npos || job_token.empty()) return false;
  const std::string_view name = variable.substr(0, equals);
  const std::string_view value = variable.substr(equals + 1);
  if (name == kJob) return value == job_token;
  if (name != kOuterJobs) return false;
  const std::vector<std::string_view> tokens = split(value, ':');
  return std::find(tokens.begin(), tokens.end(), job_token) != tokens.end();
}

}  // namespace muster
