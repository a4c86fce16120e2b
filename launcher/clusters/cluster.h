// What a scheduler says in its environment variables about a job of several nodes: how many nodes
// there are, which of them this one is, and where they can meet.
//
// Pure: files and the machine are asked through functions. docs/clusters.md has a table of the
// variables.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/flag_error.h"

namespace muster {

enum class ClusterSystem : std::uint8_t { Slurm, Kubernetes, Pbs, Lsf, Mpi, Sagemaker };

using ClusterVariables = std::map<std::string, std::string, std::less<>>;

struct ClusterFacts {
  std::string host_name;
  /// The file's text, cut at a bound; nothing if it cannot be read.
  std::function<std::optional<std::string>(const std::string& path)> read_file;
  std::function<int()> gpus;  // The number of GPUs that programs see here.
};

/// A value, and in a few words where it comes from.
struct ClusterValue {
  std::string text;
  std::string source;
};

/// The ports of rendezvous that follow from the id of a job: from kClusterPortBegin on, this many.
/// They leave out 29400 and 29500, the usual ports of musterd and torchrun.
inline constexpr int kClusterPortBegin = 20000;
inline constexpr int kClusterPorts = 9000;

/// "Slurm", for messages.
std::string_view cluster_name(ClusterSystem system);

/// The answers of one system. Each function reads only the variables that its answer needs, so that
/// a value that the user has given needs none.
class Cluster {
 public:
  Cluster(ClusterSystem system, const ClusterVariables& variables, const ClusterFacts& facts)
      : system_(system), variables_(variables), facts_(facts) {}

  ClusterSystem system() const { return system_; }
  /// An error if the scheduler has started several musters on a node, or only one of all.
  Checked<void> check_tasks() const;
  Checked<ClusterValue> nodes() const;
  Checked<ClusterValue> node_rank() const;
  /// "HOST:PORT" of the first node.
  Checked<ClusterValue> endpoint() const;
  ClusterValue run_id() const;
  /// One worker for each GPU of the allocation, or one.
  Checked<ClusterValue> workers() const;

 private:
  struct HostList {
    std::vector<std::string> hosts;
    std::string source;
  };

  const std::string* variable(std::string_view name) const;
  std::string_view text(std::string_view name) const;
  Checked<std::int64_t> number(std::string_view name, std::int64_t least) const;
  Checked<ClusterValue> number_value(std::string_view name, std::int64_t least) const;
  /// The first of the variables that is set; the last if none is.
  std::string_view first_set(std::initializer_list<std::string_view> names) const;
  FlagError missing(std::string_view name, std::string_view why) const;
  Checked<HostList> hosts() const;
  Checked<HostList> slurm_hosts() const;
  Checked<HostList> lsf_hosts() const;
  Checked<HostList> pbs_hosts() const;
  Checked<HostList> sagemaker_hosts() const;
  Checked<HostList> mpi_hosts() const;
  Checked<ClusterValue> place_in_hosts() const;
  Checked<HostList> first_pod() const;
  std::string job_id() const;

  ClusterSystem system_;
  const ClusterVariables& variables_;
  const ClusterFacts& facts_;
};

/// The system that has started this process, the innermost first: mpirun within Slurm is mpirun.
std::optional<ClusterSystem> detect_cluster(const ClusterVariables& variables);

/// The system with this name, such as "slurm".
std::optional<ClusterSystem> cluster_from(std::string_view name);

/// Why this process is probably one of several that should have made one job: the variable and its
/// value, as in "SLURM_STEP_NUM_NODES is 2". Empty if nothing says so.
std::string sign_of_several_nodes(const ClusterVariables& variables, const ClusterFacts& facts);

/// The command that starts one muster on each node of the system, up to and without the script.
std::string_view cluster_command(ClusterSystem system);

}  // namespace muster
