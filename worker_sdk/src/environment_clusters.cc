// Reads the variables of Slurm and Open MPI, for a program that is started without a launcher.
#include <algorithm>
#include <cctype>

#include "environment_source.h"

namespace muster {
namespace {

constexpr int kDefaultPort = 29500;  // The default of torchrun.
// The port of a Slurm job, from a range below Linux's ephemeral ports (32768 to 60999).
constexpr int kFirstJobPort = 12000;
constexpr int kJobPorts = 20000;
constexpr int kHighestSlurmPort = 65535;

std::uint16_t read_port(const EnvironmentSource& source, int fallback) {
  return static_cast<std::uint16_t>(
      source.number_or("MASTER_PORT", fallback, {.least = 1, .most = kHighestSlurmPort}));
}

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

int read_slurm_tasks_here(const EnvironmentSource& source, const Environment& environment) {
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    const auto text = source.text(name);
    if (!text) continue;
    const auto tasks = tasks_on_node(*text, environment.group_rank);
    if (!tasks)
      source.fail(
          name, "tasks of node " + std::to_string(environment.group_rank) + ", as in \"4(x2),3\"");
    if (*tasks <= environment.local_rank)
      source.fail(name, "more tasks than the local rank " + std::to_string(environment.local_rank));
    return *tasks;
  }
  source.fail_missing("SLURM_STEP_TASKS_PER_NODE", "");
}

}  // namespace

std::string first_host(std::string_view node_list) {
  const std::size_t end = node_list.find_first_of("[,");
  std::string host(node_list.substr(0, end));
  if (end == std::string_view::npos || node_list[end] == ',') return host;
  // "node[007-9,12]-ib": keeps the first number with its zeros, and the text after the bracket.
  std::size_t at = end + 1;
  const std::size_t first = at;
  while (at < node_list.size() && is_digit(node_list[at]))
    ++at;
  const std::size_t close = node_list.find(']', at);
  if (at == first || close == std::string_view::npos) return "";
  host += node_list.substr(first, at - first);
  std::string_view rest = node_list.substr(close + 1);
  rest = rest.substr(0, rest.find(','));
  if (rest.find('[') != std::string_view::npos) return "";  // "r[1-2]n[1-4]" is not supported.
  return host + std::string(rest);
}

std::optional<int> tasks_on_node(std::string_view tasks_per_node, int node) {
  int nodes_before = 0;
  while (!tasks_per_node.empty()) {
    const std::size_t comma = tasks_per_node.find(',');
    std::string_view part = tasks_per_node.substr(0, comma);
    tasks_per_node = comma == std::string_view::npos ? "" : tasks_per_node.substr(comma + 1);
    int repeats = 1;
    if (const std::size_t open = part.find("(x"); open != std::string_view::npos) {
      if (!part.ends_with(')')) return std::nullopt;
      const auto times = part.substr(open + 2, part.size() - open - 3);
      const auto parsed = parse_whole(times, {.least = 1, .most = 1'000'000});
      if (!parsed) return std::nullopt;
      repeats = *parsed;
      part = part.substr(0, open);
    }
    const auto tasks = parse_whole(part, {.least = 1});
    if (!tasks) return std::nullopt;
    if (node < nodes_before + repeats) return tasks;
    nodes_before += repeats;
  }
  return std::nullopt;
}

std::optional<Environment> read_slurm(const EnvironmentLookup& lookup) {
  const EnvironmentSource source(lookup, describe(LaunchedBy::Slurm));
  // A batch script also has SLURM_PROCID, but not SLURM_STEP_NUM_TASKS, because it is not a task of
  // a step. Its single process must not wait for peers that do not exist.
  if (!source.text("SLURM_STEP_NUM_TASKS") || !source.text("SLURM_PROCID")) return std::nullopt;
  Environment environment;
  environment.launched_by = LaunchedBy::Slurm;
  environment.world_size = source.required("SLURM_STEP_NUM_TASKS", {.least = 1});
  const Bounds ranks{.least = 0, .most = environment.world_size - 1};
  environment.rank = source.required("SLURM_PROCID", ranks);
  environment.local_rank = source.required("SLURM_LOCALID", ranks);
  environment.group_world_size = source.number_or("SLURM_STEP_NUM_NODES", 1, {.least = 1});
  environment.group_rank =
      source.number_or("SLURM_NODEID", 0, {.least = 0, .most = environment.group_world_size - 1});
  environment.local_world_size = read_slurm_tasks_here(source, environment);
  environment.role_rank = environment.rank;
  environment.role_world_size = environment.world_size;
  environment.run_id = source.text_or("SLURM_JOB_ID", "none");
  const int job = source.number_or("SLURM_JOB_ID", 0, {});
  environment.master_port = read_port(source, kFirstJobPort + job % kJobPorts);
  environment.master_addr = source.text_or("MASTER_ADDR", "");
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
    if (!environment.master_addr.empty()) break;
    environment.master_addr = first_host(source.text_or(name, ""));
  }
  if (environment.master_addr.empty())
    source.fail_missing("MASTER_ADDR", "SLURM_STEP_NODELIST does not name a first node either.");
  return environment;
}

std::optional<Environment> read_open_mpi(const EnvironmentLookup& lookup) {
  const EnvironmentSource source(lookup, describe(LaunchedBy::OpenMpi));
  if (!source.text("OMPI_COMM_WORLD_RANK")) return std::nullopt;
  Environment environment;
  environment.launched_by = LaunchedBy::OpenMpi;
  environment.world_size = source.required("OMPI_COMM_WORLD_SIZE", {.least = 1});
  const Bounds ranks{.least = 0, .most = environment.world_size - 1};
  environment.rank = source.required("OMPI_COMM_WORLD_RANK", ranks);
  environment.local_world_size =
      source.required("OMPI_COMM_WORLD_LOCAL_SIZE", {.least = 1, .most = environment.world_size});
  environment.local_rank = source.required("OMPI_COMM_WORLD_LOCAL_RANK",
                                           {.least = 0, .most = environment.local_world_size - 1});
  environment.role_rank = environment.rank;
  environment.role_world_size = environment.world_size;
  environment.group_world_size = std::max(1, environment.world_size / environment.local_world_size);
  environment.group_rank =
      std::min(environment.rank / environment.local_world_size, environment.group_world_size - 1);
  const bool one_node = environment.local_world_size == environment.world_size;
  // mpirun sets no variable with the host of rank 0. On a single node, the host is this one.
  environment.master_addr =
      one_node ? source.text_or("MASTER_ADDR", "127.0.0.1")
               : source.required_text("MASTER_ADDR", "Pass it with mpirun -x MASTER_ADDR=host.");
  environment.master_port = read_port(source, kDefaultPort);
  return environment;
}

}  // namespace muster
