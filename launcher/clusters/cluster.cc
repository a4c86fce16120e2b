#include "launcher/clusters/cluster.h"

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/bounded_json.h"
#include "base/python_text.h"
#include "base/whole_number.h"
#include "launcher/clusters/hostlist.h"
#include "launcher/node_limit.h"

namespace muster {
namespace {

constexpr std::size_t kShownBytes = 80;
constexpr const char* kResourceConfig = "/opt/ml/input/config/resourceconfig.json";
constexpr JsonLimits kSagemakerLimits{.values = std::size_t{1} << 16, .depth = 8};

bool is_set(const ClusterVariables& variables, std::string_view name) {
  const auto found = variables.find(name);
  return found != variables.end() && !found->second.empty();
}

std::string_view without_domain(std::string_view host) {
  return host.substr(0, host.find('.'));
}

/// The number that a job id begins with, or a number made of its letters.
std::uint64_t number_of_id(std::string_view id) {
  const auto digits = std::min(id.find_first_not_of("0123456789"), id.size());
  if (const auto number = whole_number<std::uint64_t>(id.substr(0, digits))) return *number;
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a: the same on all nodes.
  for (const char c : id)
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return hash;
}

/// The hosts of SageMaker's JSON: a list, or an object with the member "hosts".
std::optional<std::vector<std::string>> hosts_of_json(std::string_view text) {
  nlohmann::json value;
  if (parse_bounded_json(text, kSagemakerLimits, value)) return std::nullopt;
  if (value.is_object()) value = value.value("hosts", nlohmann::json());
  if (!value.is_array() || value.empty()) return std::nullopt;
  std::vector<std::string> hosts;
  for (const auto& host : value) {
    if (!host.is_string()) return std::nullopt;
    hosts.push_back(host.get<std::string>());
  }
  return hosts;
}

/// The address in Open MPI's "1561460736.0;tcp://10.0.0.1,10.1.0.1:56189;tcp6://…".
std::string address_of_uri(std::string_view uri) {
  constexpr std::string_view kTcp = "tcp://";
  const auto at = uri.find(kTcp);
  if (at == std::string_view::npos) return {};
  uri.remove_prefix(at + kTcp.size());
  return std::string(uri.substr(0, uri.find_first_of(",:;")));
}

}  // namespace

std::string_view cluster_name(ClusterSystem system) {
  switch (system) {
    case ClusterSystem::Slurm:
      return "Slurm";
    case ClusterSystem::Kubernetes:
      return "Kubernetes";
    case ClusterSystem::Pbs:
      return "PBS";
    case ClusterSystem::Lsf:
      return "LSF";
    case ClusterSystem::Mpi:
      return "MPI";
    case ClusterSystem::Sagemaker:
      return "SageMaker";
  }
  return {};
}

std::string_view cluster_command(ClusterSystem system) {
  switch (system) {
    case ClusterSystem::Slurm:
      return "srun --ntasks-per-node=1 muster --cluster";
    case ClusterSystem::Kubernetes:
      return "muster --cluster --nnodes=COMPLETIONS";
    case ClusterSystem::Pbs:
    case ClusterSystem::Mpi:
      return "mpirun --map-by ppr:1:node muster --cluster";
    case ClusterSystem::Lsf:
      return "blaunch -z \"HOSTS\" muster --cluster";
    case ClusterSystem::Sagemaker:
      return "muster --cluster";
  }
  return {};
}

std::optional<ClusterSystem> cluster_from(std::string_view name) {
  for (const auto system : {ClusterSystem::Slurm, ClusterSystem::Kubernetes, ClusterSystem::Pbs,
                            ClusterSystem::Lsf, ClusterSystem::Mpi, ClusterSystem::Sagemaker})
    if (lower(cluster_name(system)) == name) return system;
  return std::nullopt;
}

std::optional<ClusterSystem> detect_cluster(const ClusterVariables& variables) {
  const auto has = [&](std::string_view name) { return is_set(variables, name); };
  if (has("OMPI_COMM_WORLD_SIZE") || (has("PMI_SIZE") && has("MPI_LOCALNRANKS")))
    return ClusterSystem::Mpi;
  if (has("SLURM_JOB_ID")) return ClusterSystem::Slurm;
  if (has("LSB_JOBID")) return ClusterSystem::Lsf;
  if (has("PBS_JOBID")) return ClusterSystem::Pbs;
  if (has("SM_HOSTS")) return ClusterSystem::Sagemaker;
  if (has("JOB_COMPLETION_INDEX")) return ClusterSystem::Kubernetes;
  return std::nullopt;
}

const std::string* Cluster::variable(std::string_view name) const {
  const auto found = variables_.find(name);
  return found == variables_.end() || found->second.empty() ? nullptr : &found->second;
}

std::string_view Cluster::text(std::string_view name) const {
  const std::string* value = variable(name);
  return value == nullptr ? std::string_view() : *value;
}

std::string_view Cluster::first_set(std::initializer_list<std::string_view> names) const {
  const auto found = std::find_if(names.begin(), names.end(),
                                  [this](std::string_view name) { return variable(name); });
  return found == names.end() ? *(names.end() - 1) : *found;
}

FlagError Cluster::missing(std::string_view name, std::string_view why) const {
  return FlagError{std::string(name) + " is not set, and " + std::string(cluster_name(system_)) +
                   std::string(why)};
}

Checked<std::int64_t> Cluster::number(std::string_view name, std::int64_t least) const {
  const std::string* value = variable(name);
  if (value == nullptr) return missing(name, " sets it for each node of a job");
  const auto number = whole_number<std::int64_t>(*value);
  if (!number || *number < least || *number > kMaxNodes)
    return FlagError{
        std::string(name) + " is " + python_repr(std::string_view(*value).substr(0, kShownBytes)) +
        ": it must be a number from " + std::to_string(least) + " to " + std::to_string(kMaxNodes)};
  return *number;
}

Checked<ClusterValue> Cluster::number_value(std::string_view name, std::int64_t least) const {
  const auto value = number(name, least);
  if (!value) return value.error();
  return ClusterValue{std::to_string(*value), std::string(name)};
}

Checked<void> Cluster::check_tasks() const {
  if (system_ == ClusterSystem::Slurm) {
    if (!variable("SLURM_STEP_ID") && !variable("SLURM_STEPID")) {
      const auto nodes = number(first_set({"SLURM_JOB_NUM_NODES", "SLURM_NNODES"}), 1);
      if (nodes && *nodes > 1)
        return FlagError{
            "SLURM_STEP_ID is not set: this muster was started without srun, on one of " +
            std::to_string(*nodes) + " nodes only; start it with srun --ntasks-per-node=1"};
      return {};
    }
    const std::string_view tasks = text("SLURM_STEP_TASKS_PER_NODE");  // "1(x2)", or "8(x2),4".
    for (const std::string_view part : split(tasks, ','))
      if (const auto count = part.substr(0, part.find('(')); !count.empty() && count != "1")
        return FlagError{"SLURM_STEP_TASKS_PER_NODE is " + python_repr(tasks) +
                         ": one muster on each node starts the node's workers; give "
                         "srun --ntasks-per-node=1"};
    return {};
  }
  if (system_ != ClusterSystem::Mpi) return {};
  const auto name = first_set({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"});
  const auto local = number(name, 1);
  if (!local) return local.error();
  if (*local > 1)
    return FlagError{std::string(name) + " is " + std::to_string(*local) +
                     ": one muster on each node starts the node's workers; give mpirun "
                     "--map-by ppr:1:node (Open MPI) or -ppn 1 (Intel MPI, MPICH)"};
  return {};
}

Checked<Cluster::HostList> Cluster::slurm_hosts() const {
  const auto name =
      std::string(first_set({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}));
  if (!variable(name)) return missing(name, " lists a job's hosts there");
  auto hosts = expand_hostlist(text(name), name);
  if (!hosts) return hosts.error();
  return HostList{*std::move(hosts), name};
}

Checked<Cluster::HostList> Cluster::lsf_hosts() const {
  if (!variable("LSB_MCPU_HOSTS"))
    return missing("LSB_MCPU_HOSTS", " lists a job's hosts and their slots there");
  const std::string_view list = text("LSB_MCPU_HOSTS");  // "hostA 4 hostB 4"
  std::string names;
  bool is_name = true;
  bool is_good = true;
  for (const std::string_view word : split(list, ' ')) {
    if (word.empty()) continue;
    if (is_name)
      names.append(word).append(" ");
    else
      is_good = is_good && whole_number<int>(word).has_value();
    is_name = !is_name;
  }
  auto hosts = distinct_hosts(names, "LSB_MCPU_HOSTS");
  if (!hosts) return hosts.error();
  if (!is_good || !is_name || hosts->empty())
    return FlagError{"LSB_MCPU_HOSTS is " + python_repr(list.substr(0, kShownBytes)) +
                     ": it must be a list of hosts, each with its number of slots behind it"};
  // Under jsrun the first host runs the batch script, and no task.
  const auto tasks = number("JSM_NAMESPACE_SIZE", 1);
  if (tasks && hosts->size() == static_cast<std::size_t>(*tasks) + 1) hosts->erase(hosts->begin());
  return HostList{*std::move(hosts), "LSB_MCPU_HOSTS"};
}

Checked<Cluster::HostList> Cluster::pbs_hosts() const {
  const std::string* path = variable("PBS_NODEFILE");
  if (path == nullptr) return missing("PBS_NODEFILE", " names the file with a job's hosts there");
  const auto content = facts_.read_file(*path);
  if (!content)
    return FlagError{"PBS_NODEFILE is " + python_repr(*path) +
                     ", which cannot be read here: PBS writes it on the first host only; copy it "
                     "to a folder that all nodes see, and let PBS_NODEFILE name the copy"};
  auto hosts = distinct_hosts(*content, "PBS_NODEFILE");
  if (!hosts) return hosts.error();
  if (hosts->empty())
    return FlagError{"PBS_NODEFILE is " + python_repr(*path) + ", which names no host"};
  return HostList{*std::move(hosts), "PBS_NODEFILE"};
}

Checked<Cluster::HostList> Cluster::sagemaker_hosts() const {
  std::string source = "SM_HOSTS";
  std::string content(text(source));
  if (content.empty()) {
    const auto file = facts_.read_file(kResourceConfig);
    if (!file) return missing("SM_HOSTS", std::string("'s ") + kResourceConfig + " cannot be read");
    source = kResourceConfig;
    content = *file;
  }
  auto hosts = hosts_of_json(content);
  if (!hosts)
    return FlagError{source + " is " + python_repr(content.substr(0, kShownBytes)) +
                     ": it must list the hosts as JSON, as in [\"algo-1\", \"algo-2\"]"};
  return HostList{*std::move(hosts), source};
}

/// The list of the scheduler in whose job mpirun runs; else the machine of Open MPI's mpirun.
Checked<Cluster::HostList> Cluster::mpi_hosts() const {
  if (variable("SLURM_JOB_NODELIST")) return slurm_hosts();
  if (variable("LSB_MCPU_HOSTS")) return lsf_hosts();
  if (variable("PBS_NODEFILE"))
    if (auto hosts = pbs_hosts()) return hosts;
  const std::string_view uri = text("OMPI_MCA_orte_hnp_uri");
  const std::string address = address_of_uri(uri);
  const bool is_elsewhere =
      text("OMPI_COMM_WORLD_RANK") == "0" && text("OMPI_MCA_orte_local_daemon_uri") != uri;
  if (address.empty() || is_elsewhere)
    return FlagError{
        std::string(address.empty() ? "mpirun does not say which host has rank 0"
                                    : "mpirun runs on another host than rank 0") +
        ", so nobody knows where the nodes meet; give --rdzv-endpoint=HOST:PORT with the host of "
        "rank 0"};
  return HostList{{address}, "OMPI_MCA_orte_hnp_uri"};
}

Checked<Cluster::HostList> Cluster::hosts() const {
  switch (system_) {
    case ClusterSystem::Slurm:
      return slurm_hosts();
    case ClusterSystem::Lsf:
      return lsf_hosts();
    case ClusterSystem::Pbs:
      return pbs_hosts();
    case ClusterSystem::Sagemaker:
      return sagemaker_hosts();
    case ClusterSystem::Mpi:
      return mpi_hosts();
    case ClusterSystem::Kubernetes:
      break;
  }
  return first_pod();
}

/// The whole name of the pod with index 0. Pods of an indexed Job are called JOB-INDEX, and a
/// headless service gives each a name under its own: kubelet writes it into /etc/hosts.
Checked<Cluster::HostList> Cluster::first_pod() const {
  const auto index = number("JOB_COMPLETION_INDEX", 0);
  if (!index) return index.error();
  const std::string end = "-" + std::to_string(*index);
  if (!facts_.host_name.ends_with(end))
    return FlagError{"JOB_COMPLETION_INDEX is " + std::to_string(*index) +
                     ", but this host is called " + python_repr(facts_.host_name) +
                     " and not as a pod of an indexed Job; give --rdzv-endpoint=HOST:PORT"};
  const std::string text = facts_.read_file("/etc/hosts").value_or(std::string());
  const auto names = distinct_hosts(text, "/etc/hosts");
  if (!names) return names.error();
  for (const std::string& name : *names)
    if (name.starts_with(facts_.host_name + ".")) {
      std::string first = facts_.host_name.substr(0, facts_.host_name.size() - end.size());
      first.append("-0").append(name.substr(facts_.host_name.size()));
      return HostList{{std::move(first)}, "the name of this pod in /etc/hosts"};
    }
  return FlagError{
      "the pod " + python_repr(facts_.host_name) +
      " has no name that other pods can look up: give its template a subdomain, and make a "
      "headless service of that name; or give --rdzv-endpoint=HOST:PORT"};
}

/// This host's place in the list of hosts.
Checked<ClusterValue> Cluster::place_in_hosts() const {
  const auto list = hosts();
  if (!list) return list.error();
  std::string own = facts_.host_name;
  std::string source = "the place of " + own + " in " + list->source;
  if (system_ == ClusterSystem::Sagemaker && variable("SM_CURRENT_HOST")) {
    own = text("SM_CURRENT_HOST");
    source = "the place of SM_CURRENT_HOST in " + list->source;
  }
  auto found = std::find(list->hosts.begin(), list->hosts.end(), own);
  if (found == list->hosts.end())
    found = std::find_if(list->hosts.begin(), list->hosts.end(), [&](const std::string& host) {
      return without_domain(host) == without_domain(own);
    });
  if (found == list->hosts.end())
    return FlagError{list->source + " has no host " + python_repr(own) +
                     ", which is this one; give --node-rank"};
  return ClusterValue{std::to_string(found - list->hosts.begin()), source};
}

Checked<ClusterValue> Cluster::nodes() const {
  if (system_ == ClusterSystem::Mpi)
    return number_value(first_set({"PMI_SIZE", "OMPI_COMM_WORLD_SIZE"}), 1);
  if (system_ == ClusterSystem::Slurm)
    return number_value(first_set({"SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"}),
                        1);
  if (system_ == ClusterSystem::Kubernetes)
    return FlagError{
        "--nnodes is not given, and Kubernetes does not tell a pod how many there are; give "
        "--nnodes, or set PET_NNODES in the pod's template, to the Job's completions"};
  const auto list = hosts();
  if (!list) return list.error();
  return ClusterValue{std::to_string(list->hosts.size()), "the hosts of " + list->source};
}

Checked<ClusterValue> Cluster::node_rank() const {
  switch (system_) {
    case ClusterSystem::Slurm:
      return number_value("SLURM_NODEID", 0);
    case ClusterSystem::Kubernetes:
      return number_value("JOB_COMPLETION_INDEX", 0);
    case ClusterSystem::Mpi:
      return number_value(first_set({"PMI_RANK", "OMPI_COMM_WORLD_RANK"}), 0);
    case ClusterSystem::Lsf:
      if (variable("JSM_NAMESPACE_RANK")) return number_value("JSM_NAMESPACE_RANK", 0);
      break;
    case ClusterSystem::Pbs:
    case ClusterSystem::Sagemaker:
      break;
  }
  return place_in_hosts();
}

std::string Cluster::job_id() const {
  switch (system_) {
    case ClusterSystem::Slurm: {
      std::string id(text("SLURM_JOB_ID"));
      // Each step of a job, and each start of a job that was requeued, is a run of its own.
      if (const auto step = text(first_set({"SLURM_STEP_ID", "SLURM_STEPID"})); !step.empty())
        id.append(".").append(step);
      if (const auto again = text("SLURM_RESTART_COUNT"); !again.empty() && again != "0")
        id.append("-").append(again);
      return id;
    }
    case ClusterSystem::Lsf: {
      std::string id(text("LSB_JOBID"));
      if (const auto index = text("LSB_JOBINDEX"); !index.empty() && index != "0")
        id.append("-").append(index);
      return id;
    }
    case ClusterSystem::Pbs: {
      std::string id;
      for (const char c : without_domain(text("PBS_JOBID")))  // "1234.server", or "1234[5].server".
        if (c == '[')
          id += '-';
        else if (c != ']')
          id += c;
      return id;
    }
    case ClusterSystem::Mpi:
      return std::string(text("PMIX_NAMESPACE"));
    case ClusterSystem::Sagemaker:
      return std::string(text("TRAINING_JOB_NAME"));
    case ClusterSystem::Kubernetes:
      return facts_.host_name.substr(0, facts_.host_name.rfind('-'));
  }
  return {};
}

ClusterValue Cluster::run_id() const {
  std::string id = lower(cluster_name(system_));
  if (const std::string job = job_id(); !job.empty()) id += "-" + job;
  std::replace(id.begin(), id.end(), '/', '-');
  return {id, "the job's id"};
}

Checked<ClusterValue> Cluster::endpoint() const {
  const auto list = hosts();
  if (!list) return list.error();
  // Pods and SageMaker's hosts belong to one job, so each job can have the usual port.
  std::string port = "29400";
  std::string from;
  if (system_ != ClusterSystem::Kubernetes && system_ != ClusterSystem::Sagemaker) {
    const std::string id = job_id();
    std::uint64_t number = number_of_id(id);
    if (const auto step =
            whole_number<std::uint32_t>(text(first_set({"SLURM_STEP_ID", "SLURM_STEPID"})));
        step && system_ == ClusterSystem::Slurm)
      number += std::uint64_t{*step} * 101;  // Steps of a job may run at the same time.
    port = std::to_string(kClusterPortBegin + static_cast<int>(number % kClusterPorts));
    from = ", port from the job's id";
  }
  const std::string& host = list->hosts.front();
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return ClusterValue{(is_ipv6 ? "[" + host + "]" : host) + ":" + port,
                      "the first host of " + list->source + from};
}

Checked<ClusterValue> Cluster::workers() const {
  const std::string_view name = system_ == ClusterSystem::Slurm       ? "SLURM_GPUS_ON_NODE"
                                : system_ == ClusterSystem::Sagemaker ? "SM_NUM_GPUS"
                                                                      : "";
  if (!name.empty() && variable(name)) {
    auto gpus = number_value(name, 0);
    if (!gpus) return gpus.error();
    if (gpus->text != "0") return gpus;
    return ClusterValue{"1", std::string(name) + " is 0"};
  }
  if (const int gpus = facts_.gpus(); gpus > 0)
    return ClusterValue{std::to_string(gpus), "the GPUs that are visible here"};
  return ClusterValue{"1", "no GPU is visible here"};
}

std::string sign_of_several_nodes(const ClusterVariables& variables, const ClusterFacts& facts) {
  const auto system = detect_cluster(variables);
  if (!system) return {};
  const Cluster cluster(*system, variables, facts);
  const auto above = [&](std::string_view name, int limit) -> std::string {
    const auto found = variables.find(name);
    if (found == variables.end()) return {};
    const auto number = whole_number<std::int64_t>(found->second);
    if (!number || *number <= limit) return {};
    return std::string(name) + " is " + found->second;
  };
  const auto first_above_one = [&](std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names)
      if (std::string sign = above(name, 1); !sign.empty()) return sign;
    return std::string();
  };
  switch (*system) {
    case ClusterSystem::Slurm:
      // Within a step its own variables count: it may have fewer nodes than the job.
      if (is_set(variables, "SLURM_STEP_NUM_NODES"))
        return first_above_one({"SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS"});
      return first_above_one({"SLURM_NNODES", "SLURM_JOB_NUM_NODES"});
    case ClusterSystem::Mpi:
      return first_above_one({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"});
    case ClusterSystem::Kubernetes:
      return above("JOB_COMPLETION_INDEX", 0);
    case ClusterSystem::Lsf:
    case ClusterSystem::Pbs:
    case ClusterSystem::Sagemaker:
      break;
  }
  const auto nodes = cluster.nodes();
  if (!nodes || nodes->text == "1") return {};
  return nodes->source + " are " + nodes->text;
}

}  // namespace muster
