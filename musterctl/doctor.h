// What breaks jobs of several nodes, checked on this machine before they start.
//
// Facts are gathered by doctor_facts.h; what they mean is decided here. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "musterctl/gpu_errors.h"
#include "musterctl/gpu_health.h"

namespace muster::ctl {

struct FolderFacts {
  std::string what;  // "TMPDIR"
  std::string path;
  bool writable = false;
  std::uint64_t free_bytes = 0;
};
struct EndpointFacts {
  std::string what;  // "rendezvous" or "musterd's HTTP"
  std::string endpoint;
  std::string error;  // Empty: it was reached.
  std::vector<std::string> addresses;
  double connect_ms = 0;
  std::optional<double> clock_ahead_seconds;  // Of this machine, against musterd.
};

struct DoctorFacts {
  std::string host_name;
  std::string host_error;                   // Why it cannot be looked up; empty: it can.
  std::vector<std::string> host_addresses;  // What the look-up of the own name says.
  std::map<std::string, std::vector<std::string>> interfaces;  // Those that are up.
  std::map<std::string, std::string> interface_variables;      // GLOO_SOCKET_IFNAME and the like.
  std::vector<EndpointFacts> endpoints;
  std::optional<std::uint64_t> shm_bytes;
  std::optional<std::uint64_t> shm_free_bytes;
  std::map<std::string, std::uint64_t> limits;  // "nofile", "nproc", "memlock"; no limit: ~0.
  unsigned cores = 1;
  unsigned gpus = 0;
  GpuHealth gpu_health = {};
  GpuErrors gpu_errors = {};
  std::optional<unsigned> torch_gpus;  // As many as torch sees; nothing: it was not asked.
  std::string visible_gpus;            // CUDA_VISIBLE_DEVICES, if it is set and not empty.
  std::optional<std::uint64_t> cgroup_memory_max;
  std::optional<std::uint64_t> cgroup_memory_now;
  std::optional<double> cgroup_cores;
  std::optional<std::uint64_t> cgroup_pids_max;
  std::vector<FolderFacts> folders;
  bool asked_python = true;  // false: the next three say nothing.
  std::string python;        // Its path; empty: none on PATH.
  std::string python_version;
  std::string torch_version;  // Empty: not found.
  std::string nccl_version;   // Of its package; empty: none.
  unsigned numa_nodes = 1;
};

enum class Verdict { Ok, Note, Warning, Failure };

struct Check {
  std::string name;  // One word, for programs.
  Verdict verdict = Verdict::Ok;
  std::string found;
  std::string remedy;     // Empty if there is nothing to do.
  std::string peer = {};  // The node that it is about; empty: this machine.
};

inline constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

std::vector<Check> judge(const DoctorFacts& facts);
bool has_failure(const std::vector<Check>& checks);
/// Without what is well between this machine and another one.
std::string checks_text(const std::vector<Check>& checks);
/// `peers`: an array that becomes a field of that name, as JSON; empty: there is none.
std::string checks_json(const std::vector<Check>& checks, const std::string& peers = {});

}  // namespace muster::ctl
