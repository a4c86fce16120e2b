#include "muster/environment.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "environment_source.h"

namespace muster {
namespace {

constexpr int kHighestPort = 65535;

// Returns the value of "--local-rank=N" or "--local_rank=N" (before PyTorch 2.0). The value may
// also be the next argument.
std::optional<std::string> local_rank_argument(const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    for (const std::string_view name : {"--local-rank", "--local_rank"}) {
      const std::string& argument = arguments[i];
      if (argument == name && i + 1 < arguments.size()) return arguments[i + 1];
      if (argument.starts_with(name) && argument.size() > name.size() &&
          argument[name.size()] == '=')
        return argument.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

std::optional<int> read_local_rank(const EnvironmentSource& source,
                                   const std::vector<std::string>& arguments, int world_size) {
  const Bounds bounds{.least = 0, .most = world_size - 1};
  const auto variable = source.number("LOCAL_RANK", bounds);
  const auto argument = local_rank_argument(arguments);
  if (!argument) return variable;
  const auto parsed = parse_whole(*argument, bounds);
  if (!parsed)
    throw Error("--local-rank=" + *argument + ": expected a whole number from 0 to " +
                std::to_string(bounds.most) +
                ". torch.distributed.launch and muster-launch pass it to each process.");
  if (variable && *variable != *parsed)
    throw Error("LOCAL_RANK=\"" + std::to_string(*variable) + "\" but --local-rank=" + *argument +
                ": expected the same number. Leave one of them out.");
  return parsed;
}

// Reads LOCAL_RANK and LOCAL_WORLD_SIZE. Both may be missing: Python needs neither to connect, and
// some launchers (Kubeflow's PyTorchJob) set neither, because they start one process per node. One
// of them alone is an error, because the node may have several processes.
void read_place_on_node(const EnvironmentSource& source, const std::vector<std::string>& arguments,
                        Environment& environment) {
  const auto rank = read_local_rank(source, arguments, environment.world_size);
  const auto size = source.number("LOCAL_WORLD_SIZE", {.least = 1, .most = environment.world_size});
  if (!rank && size.value_or(1) > 1)
    source.fail_missing("LOCAL_RANK", "With one process on each node it is 0.");
  if (!size && rank && environment.world_size > 1)
    source.fail_missing("LOCAL_WORLD_SIZE", "It is the number of processes on this node.");
  environment.local_rank = rank.value_or(0);
  environment.local_world_size = size.value_or(1);
  if (environment.local_rank >= environment.local_world_size)
    source.fail("LOCAL_WORLD_SIZE",
                "more than the local rank " + std::to_string(environment.local_rank));
}

void read_store_address(const EnvironmentSource& source, Environment& environment) {
  if (environment.world_size == 1 && !source.text("MASTER_ADDR")) return;
  environment.master_addr =
      source.required_text("MASTER_ADDR", "It is the host of rank 0 or of the launcher's store.");
  if (!source.text("MASTER_PORT"))
    source.fail_missing("MASTER_PORT", "It is the port of the store at MASTER_ADDR.");
  environment.master_port = static_cast<std::uint16_t>(
      source.required("MASTER_PORT", {.least = 0, .most = kHighestPort}));
}

// Reads the variables that only elastic launchers set. Without them, the job has one attempt.
void read_elastic(const EnvironmentSource& source, Environment& environment) {
  environment.restart_count = source.number_or("TORCHELASTIC_RESTART_COUNT", 0, {});
  environment.max_restarts = source.number_or("TORCHELASTIC_MAX_RESTARTS", 0, {});
  environment.run_id = source.text_or("TORCHELASTIC_RUN_ID", environment.run_id);
  environment.error_file = source.text_or("TORCHELASTIC_ERROR_FILE", "");
  // torch compares the value with "True". Any other value means no (rendezvous.py, 2.13).
  environment.use_agent_store = source.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
}

Environment read_launcher(const EnvironmentLookup& lookup,
                          const std::vector<std::string>& arguments) {
  const EnvironmentSource source(lookup, describe(LaunchedBy::Launcher));
  Environment environment;
  environment.launched_by = LaunchedBy::Launcher;
  environment.world_size = source.required("WORLD_SIZE", {.least = 1});
  environment.rank = source.required("RANK", {.least = 0, .most = environment.world_size - 1});
  read_place_on_node(source, arguments, environment);
  // Without GROUP_RANK, all nodes have the same number of processes. A launcher with different
  // numbers sets GROUP_RANK.
  const int world_size = environment.world_size;
  const int nodes = std::max(1, world_size / environment.local_world_size);
  environment.group_world_size = source.number_or("GROUP_WORLD_SIZE", nodes, {.least = 1});
  environment.group_rank = source.number_or(
      "GROUP_RANK", std::min(environment.rank / environment.local_world_size, nodes - 1),
      {.least = 0, .most = environment.group_world_size - 1});
  environment.role_name = source.text_or("ROLE_NAME", "default");
  environment.role_world_size = source.number_or("ROLE_WORLD_SIZE", world_size, {.least = 1});
  environment.role_rank = source.number_or("ROLE_RANK", environment.rank,
                                           {.least = 0, .most = environment.role_world_size - 1});
  read_store_address(source, environment);
  read_elastic(source, environment);
  return environment;
}

}  // namespace

std::string_view describe(LaunchedBy launched_by) {
  switch (launched_by) {
    case LaunchedBy::Launcher:
      return "A launcher (muster, torchrun)";
    case LaunchedBy::Slurm:
      return "Slurm's srun";
    case LaunchedBy::OpenMpi:
      return "Open MPI's mpirun";
    case LaunchedBy::SingleProcess:
      return "Nobody (a single process)";
  }
  return "";
}

Environment read_environment(const EnvironmentLookup& lookup,
                             const std::vector<std::string>& arguments) {
  const EnvironmentSource any(lookup, "");
  if (any.text("RANK") || any.text("WORLD_SIZE")) return read_launcher(lookup, arguments);
  for (const auto& read : {read_slurm, read_open_mpi}) {
    if (auto environment = read(lookup)) {
      read_elastic(any, *environment);
      return *std::move(environment);
    }
  }
  if (any.text("LOCAL_RANK") || local_rank_argument(arguments))
    EnvironmentSource(lookup, describe(LaunchedBy::Launcher))
        .fail_missing("RANK", "LOCAL_RANK or --local-rank alone does not say who this process is.");
  Environment environment;
  read_elastic(any, environment);
  return environment;
}

namespace {

// Keeps the value of --local-rank=N for later calls without arguments: init_process_group() and
// local_device().
class RememberedArgument {
 public:
  void set(std::optional<std::string> value) {
    const std::lock_guard lock(mutex_);
    value_ = std::move(value);
  }
  std::optional<std::string> get() const {
    const std::lock_guard lock(mutex_);
    return value_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<std::string> value_;
};

RememberedArgument& remembered_argument() {
  static RememberedArgument instance;
  return instance;
}

}  // namespace

Environment read_environment(int argc, const char* const* argv) {
  const auto lookup = [](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i)
    arguments.emplace_back(argv[i]);
  if (argv != nullptr) {
    auto environment = read_environment(lookup, arguments);
    remembered_argument().set(local_rank_argument(arguments));
    return environment;
  }
  if (const auto known = remembered_argument().get()) arguments.push_back("--local-rank=" + *known);
  return read_environment(lookup, arguments);
}

}  // namespace muster
