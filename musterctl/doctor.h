// Checks this machine for problems that break jobs of several nodes, before they start.
//
// doctor_facts.h gathers the facts; the functions here judge them. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/system/cgroup_limits.h"
#include "musterctl/gpu_errors.h"
#include "musterctl/gpu_health.h"
#include "rendezvous/node/known_host.h"

namespace muster::ctl {

struct FolderFacts {
  std::string what;  // "TMPDIR"
  std::string path;
  bool writable = false;
  std::uint64_t free_bytes = 0;
  std::string instead_of;  // The place before this one, which cannot be written; empty: none.
};
inline constexpr const char* kRendezvous = "rendezvous";
struct EndpointFacts {
  std::string what;  // kRendezvous or "musterd's HTTP"
  std::string endpoint;
  std::string error;     // Empty: the endpoint was reached, and has answered.
  bool refused = false;  // The error is what musterd has answered.
  std::vector<std::string> addresses;
  double connect_ms = 0;
  std::optional<double> clock_ahead_seconds;  // How far this clock is ahead of musterd's.
};

struct DoctorFacts {
  std::string host_name;
  std::string host_error;                   // Why the name cannot be looked up; empty: it can.
  std::vector<std::string> host_addresses;  // The addresses of the host name.
  std::map<std::string, std::vector<std::string>> interfaces;  // Of each that is up, its addresses.
  bool loopback_is_down = false;
  std::map<std::string, std::string> interface_variables;  // Such as GLOO_SOCKET_IFNAME.
  std::uint64_t uid = 0;
  bool has_user_name = true;  // The user's number has a name (getpwuid).
  std::string user_variable;  // A variable that has the user's name, such as USER; empty: none.
  std::string home;           // HOME; empty: not set.
  bool home_is_writable = true;
  bool has_compile_cache = false;  // TORCHINDUCTOR_CACHE_DIR is set.
  std::vector<EndpointFacts> endpoints;
  std::vector<MetHost> hosts = {};  // At the endpoints of the rendezvous.
  std::optional<std::uint64_t> shm_bytes;
  std::optional<std::uint64_t> shm_free_bytes;
  std::map<std::string, std::uint64_t> limits;  // "nofile", "nproc", "memlock".
  unsigned cores = 1;
  unsigned gpus = 0;
  GpuHealth gpu_health = {};
  GpuErrors gpu_errors = {};
  std::optional<unsigned> torch_gpus;  // The number that torch sees; nothing: it was not asked.
  std::string visible_gpus;            // CUDA_VISIBLE_DEVICES, if it is set and not empty.
  CgroupLimits cgroup = {};
  std::vector<FolderFacts> folders;
  bool asked_python = true;    // False: the next five are not known.
  std::string python;          // Its path; empty: see python_problem.
  std::string python_problem;  // Why Python has not answered, as a sentence; empty: it has.
  std::string python_version;
  std::string torch_version;  // Empty: not found.
  std::string nccl_version;   // Of NCCL's Python package; empty: none.
  unsigned numa_nodes = 1;
};

enum class Verdict { Ok, Note, Warning, Failure };

struct Check {
  std::string name;  // One word, for programs.
  Verdict verdict = Verdict::Ok;
  std::string found;
  std::string remedy;     // Empty if there is nothing to do.
  std::string peer = {};  // The node that the check is about; empty: this machine.
};

/// DoctorFacts::limits has this value for a limit that is not set.
inline constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

std::vector<Check> judge(const DoctorFacts& facts);
bool has_failure(const std::vector<Check>& checks);
/// Text for people, without the checks of other nodes that are Ok. Remedies and findings are broken
/// into lines of at most `columns`; 0: they are not.
std::string checks_text(const std::vector<Check>& checks, std::size_t columns = 0);
/// JSON for programs. `peers`: a JSON array that becomes the field "peers"; empty: no such field.
std::string checks_json(const std::vector<Check>& checks, const std::string& peers = {});

}  // namespace muster::ctl
