#include "launcher/cluster_flags.h"

#include <utility>

#include "base/python_text.h"
#include "launcher/clusters/cluster.h"
#include "launcher/rendezvous_flags.h"

namespace muster {
namespace {

ClusterFacts cluster_facts(const NodeFacts& facts) {
  return {.host_name = facts.host_name ? facts.host_name() : std::string(),
          .read_file = [&facts](const std::string& path) -> std::optional<std::string> {
            return facts.read_file ? facts.read_file(path) : std::nullopt;
          },
          .gpus = facts.gpus};
}

Checked<ClusterSystem> chosen_system(const Flags& flags, const Environment& environment) {
  if (const auto named = cluster_from(*flags.cluster)) return *named;
  if (const auto found = detect_cluster(environment)) return *found;
  return FlagError{
      flags.name_of(&Flags::cluster) +
      ": no variable of a scheduler is set (SLURM_JOB_ID, OMPI_COMM_WORLD_SIZE, PMI_SIZE, "
      "LSB_JOBID, PBS_JOBID, SM_HOSTS, JOB_COMPLETION_INDEX); start muster by srun, mpirun or the "
      "like, or give --nnodes and --rdzv-endpoint"};
}

class Filler {
 public:
  Filler(const Flags& flags, const Cluster& cluster, std::vector<std::string>& choices)
      : filled_(flags), cluster_(cluster), choices_(choices) {}

  Checked<Flags> run();

 private:
  bool is_given(const OptionField& field) const { return filled_.source(field) != Source::Default; }
  void set(const OptionField& field, const ClusterValue& value);
  Checked<void> fill_meeting();

  Flags filled_;
  const Cluster& cluster_;
  std::vector<std::string>& choices_;
};

void Filler::set(const OptionField& field, const ClusterValue& value) {
  filled_.given[option_index(field)] = {Source::Cluster, value.source};
  choices_.push_back(
      std::string(option(field).long_name()).append("=").append(value.text).append("  (") +
      value.source + ")");
}

/// Rank and endpoint of a node that meets others.
Checked<void> Filler::fill_meeting() {
  if (!is_given(&Flags::node_rank)) {
    const auto rank = cluster_.node_rank();
    if (!rank) return rank.error();
    set(&Flags::node_rank, *rank);
    filled_.node_rank = std::stoll(rank->text);
  }
  // With --master-addr the user has chosen the static backend.
  if (is_given(&Flags::master_addr)) return {};
  if (!is_given(&Flags::rdzv_backend)) {
    filled_.rdzv_backend = "c10d";
    set(&Flags::rdzv_backend, {"c10d", "for several nodes"});
  }
  const bool meets_at_node = filled_.rdzv_backend == "c10d" || filled_.rdzv_backend == "static";
  if (is_given(&Flags::rdzv_endpoint) || !meets_at_node) return {};
  const auto endpoint = cluster_.endpoint();
  if (!endpoint) return endpoint.error();
  set(&Flags::rdzv_endpoint, *endpoint);
  filled_.rdzv_endpoint = endpoint->text;
  return {};
}

Checked<Flags> Filler::run() {
  if (const auto checked = cluster_.check_tasks(); !checked) return checked.error();
  if (!is_given(&Flags::nnodes)) {
    const auto nodes = cluster_.nodes();
    if (!nodes) return nodes.error();
    set(&Flags::nnodes, *nodes);
    filled_.nnodes = nodes->text;
  }
  if (!is_given(&Flags::nproc_per_node)) {
    const auto workers = cluster_.workers();
    if (!workers) return workers.error();
    set(&Flags::nproc_per_node, *workers);
    filled_.nproc_per_node = workers->text;
  }
  if (!is_given(&Flags::rdzv_id)) {
    const ClusterValue id = cluster_.run_id();
    set(&Flags::rdzv_id, id);
    filled_.rdzv_id = id.text;
  }
  const auto nodes = parse_nnodes(filled_.nnodes, filled_.name_of(&Flags::nnodes));
  if (!nodes) return nodes.error();
  if (nodes->max > 1)
    if (const auto filled = fill_meeting(); !filled) return filled.error();
  return std::move(filled_);
}

/// The command with which one job of all nodes is started.
std::string command_for_all(ClusterSystem system, const Flags& flags) {
  return std::string(cluster_command(system)) + (flags.module ? " -m " : " ") + flags.script;
}

/// Kubeflow's operators set PET_ variables for several nodes: together, or the job is wrong.
std::vector<std::string> missing_pet_variables(const Flags& flags, const AgentOptions& plan) {
  const auto of_variable = [&](const OptionField& field) {
    return flags.source(field) == Source::Variable;
  };
  const auto is_missing = [&](const OptionField& field) {
    return flags.source(field) == Source::Default;
  };
  const bool meets_elsewhere = flags.standalone || !flags.rdzv_endpoint.empty() ||
                               plan.rendezvous.backend == RendezvousBackend::Etcd;
  if (meets_elsewhere) return {};
  std::vector<std::string> lines;
  if (plan.max_nodes == 1) {
    if (is_missing(&Flags::nnodes))
      for (const OptionField& field :
           {OptionField(&Flags::node_rank), OptionField(&Flags::master_addr)})
        if (of_variable(field) && lines.empty())
          lines.push_back(std::string(option(field).environment) +
                          " is set, but PET_NNODES is not: this node makes a job of its own; set "
                          "PET_NNODES to the number of nodes");
    return lines;
  }
  if (plan.rendezvous.backend != RendezvousBackend::Static) return {};
  const bool by_variables = of_variable(&Flags::nnodes) || of_variable(&Flags::master_addr) ||
                            of_variable(&Flags::node_rank);
  if (is_missing(&Flags::node_rank) && by_variables)
    lines.emplace_back(
        "PET_NODE_RANK is not set: this node takes rank 0, as each other node without it does; "
        "set it to the node's rank");
  if (is_missing(&Flags::master_addr))
    lines.push_back(
        flags.name_of(&Flags::nnodes) + " is " + flags.nnodes + ", but " +
        (by_variables ? "PET_MASTER_ADDR is not set" : "no --master-addr is given") +
        ": nodes look for node 0 at 127.0.0.1, where only agents on this machine can join");
  return lines;
}

}  // namespace

Checked<Flags> fill_from_cluster(const Flags& flags, const Environment& environment,
                                 const NodeFacts& facts, std::vector<std::string>& choices) {
  if (flags.standalone)
    return FlagError{flags.name_of(&Flags::standalone) + " means this node alone, and " +
                     flags.name_of(&Flags::cluster) +
                     " the nodes of a scheduler; leave out one of the two"};
  const auto system = chosen_system(flags, environment);
  if (!system) return system.error();
  const ClusterFacts known = cluster_facts(facts);
  const Cluster cluster(*system, environment, known);
  auto filled = Filler(flags, cluster, choices).run();
  if (!filled)
    return FlagError{flags.name_of(&Flags::cluster) + " (" + std::string(cluster_name(*system)) +
                     "): " + filled.error().message};
  return filled;
}

std::vector<std::string> cluster_warnings(const Flags& flags, const Environment& environment,
                                          const NodeFacts& facts, const AgentOptions& plan) {
  std::vector<std::string> lines = missing_pet_variables(flags, plan);
  // Who gives --nnodes=1 means it.
  if (plan.max_nodes > 1 || flags.cluster || flags.source(&Flags::nnodes) != Source::Default)
    return lines;
  const std::string sign = sign_of_several_nodes(environment, cluster_facts(facts));
  if (sign.empty()) return lines;
  lines.push_back(
      sign + ", but the options describe a job of this node alone. For one job of all nodes: " +
      command_for_all(*detect_cluster(environment), flags) +
      "; for a job of this node: --nnodes=1");
  return lines;
}

}  // namespace muster
