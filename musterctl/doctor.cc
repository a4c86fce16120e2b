#include "musterctl/doctor.h"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/net/name_lookup.h"
#include "base/next_field.h"
#include "base/size_text.h"
#include "base/take_line.h"
#include "base/wrapped_text.h"
#include "musterctl/endpoint_checks.h"
#include "musterctl/run_text.h"

namespace muster::ctl {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

using Checks = std::vector<Check>;

std::string limit_text(std::uint64_t limit) {
  return limit == kNoLimit ? "unlimited" : std::to_string(limit);
}

void check_host_name(const DoctorFacts& facts, Checks& checks) {
  Check check{"host_name", Verdict::Ok, facts.host_name + " is " + joined(facts.host_addresses),
              ""};
  if (!facts.host_error.empty()) {
    check.verdict = Verdict::Warning;
    check.found = facts.host_name + " cannot be looked up: " + facts.host_error;
    check.remedy = "give each node --local-addr=ADDRESS, or put the name into DNS or /etc/hosts";
  } else if (std::all_of(facts.host_addresses.begin(), facts.host_addresses.end(),
                         is_loopback_address)) {
    check.verdict = Verdict::Warning;
    check.found += ", which only this machine reaches";
    check.remedy =
        "other nodes cannot reach rank 0 by this name (Debian writes 127.0.1.1 into /etc/hosts): "
        "put the address of the network there, or give --local-addr=ADDRESS. One node alone is "
        "not affected";
  }
  checks.push_back(std::move(check));
}

// The words of a list "eth0,ib0:4711" without their ports, which NCCL allows.
std::vector<std::string> names_in(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    std::string_view word = next_field(list, ',');
    const std::string_view name = next_field(word, ':');
    if (!name.empty()) names.emplace_back(name);
  }
  return names;
}

std::string no_interface(const std::vector<std::string>& names) {
  std::string text = "there is no interface ";
  for (const std::string& name : names)
    text.append(name == names.front() ? "'" : ", '").append(name).append("'");
  return text + " that is up";
}

// NCCL's list has prefixes of names, or with "=" in front whole names. NCCL uses all interfaces
// that match any of them; with "^" in front, all that match none. One is enough for NCCL.
std::string problem_for_nccl(std::string_view list, const DoctorFacts& facts) {
  if (list.size() < 2) return {};  // NCCL ignores such a value.
  const bool excludes = list.starts_with('^');
  if (excludes) list.remove_prefix(1);
  const bool whole = list.starts_with('=');
  if (whole) list.remove_prefix(1);
  const std::vector<std::string> words = names_in(list);
  const auto is_used = [&](const auto& interface) {
    const auto matches = [&](const std::string& word) {
      return whole ? interface.first == word : interface.first.starts_with(word);
    };
    return std::any_of(words.begin(), words.end(), matches) != excludes;
  };
  if (words.empty() || std::any_of(facts.interfaces.begin(), facts.interfaces.end(), is_used))
    return {};
  return excludes ? "this leaves out every interface that is up" : no_interface(words);
}

// Gloo's list has whole names, and Gloo fails if any of them is missing.
std::string problem_for_gloo(std::string_view list, const DoctorFacts& facts) {
  std::vector<std::string> missing = names_in(list);
  std::erase_if(missing, [&](const auto& name) { return facts.interfaces.count(name) > 0; });
  return missing.empty() ? std::string() : no_interface(missing);
}

void check_interfaces(const DoctorFacts& facts, Checks& checks) {
  std::vector<std::string> names;
  names.reserve(facts.interfaces.size());
  for (const auto& [name, addresses] : facts.interfaces)
    names.push_back(name);
  for (const auto& [variable, value] : facts.interface_variables) {
    Check check{"interface", Verdict::Ok, std::string(variable).append("=").append(value), ""};
    const std::string problem = variable.starts_with("NCCL") ? problem_for_nccl(value, facts)
                                                             : problem_for_gloo(value, facts);
    if (!problem.empty()) {
      check.verdict = Verdict::Failure;
      check.found += ": " + problem;
      check.remedy = "unset " + variable + ", or name one of " + joined(names);
    }
    checks.push_back(std::move(check));
  }
  const bool only_loopback =
      std::all_of(facts.interfaces.begin(), facts.interfaces.end(), [](const auto& entry) {
        return std::all_of(entry.second.begin(), entry.second.end(), is_loopback_address);
      });
  if (facts.loopback_is_down)
    checks.push_back({"loopback", Verdict::Failure, "the loopback interface is down",
                      "`ip link set lo up`: until then no job runs, also not of one node"});
  Check check{"network", Verdict::Ok, "interfaces that are up: " + joined(names), ""};
  if (names.empty()) check.found = "no interface is up";
  if (only_loopback && !facts.loopback_is_down) {
    check.verdict = Verdict::Warning;
    check.remedy = "there is no network: only jobs of one node will run";
  }
  checks.push_back(std::move(check));
}

void check_shared_memory(const DoctorFacts& facts, Checks& checks) {
  Check check{"shared_memory", Verdict::Ok, "", ""};
  const std::string advice =
      "raise it: docker run --shm-size=8g or --ipc=host, in Kubernetes an "
      "emptyDir with medium: Memory at /dev/shm";
  if (!facts.shm_bytes) {
    check.verdict = Verdict::Warning;
    check.found = "there is no /dev/shm";
    check.remedy = "data loaders and NCCL need it; " + advice;
  } else {
    const std::uint64_t free = facts.shm_free_bytes.value_or(0);
    check.found = "/dev/shm has " + size_text(*facts.shm_bytes) + ", " + size_text(free) + " free";
    // Docker's default is 64 MiB, which the first data loader fills.
    if (*facts.shm_bytes <= 64 * kMiB || free < 64 * kMiB) {
      check.verdict = free < kMiB ? Verdict::Failure : Verdict::Warning;
      check.remedy = "data loaders end with 'Bus error' when it is full; " + advice;
    }
  }
  checks.push_back(std::move(check));
}

void check_limits(const DoctorFacts& facts, Checks& checks) {
  const auto limit = [&](const std::string& name) {
    const auto found = facts.limits.find(name);
    return found == facts.limits.end() ? kNoLimit : found->second;
  };
  const auto add = [&](const std::string& name, std::uint64_t least, const std::string& remedy) {
    const std::uint64_t now = limit(name);
    Check check{"limit_" + name, Verdict::Ok, name + " is " + limit_text(now), ""};
    if (now < least) {
      check.verdict = Verdict::Warning;
      check.remedy = remedy;
    }
    checks.push_back(std::move(check));
  };
  add("nofile", 4096,
      "each rank has a connection to each other one, and data loaders pass descriptors: ulimit -n "
      "65536, LimitNOFILE=, or /etc/security/limits.conf");
  add("nproc", 64 * std::uint64_t{std::max(1U, facts.cores)},
      "ranks, data loaders and their threads count: ulimit -u, TasksMax=, pids.max");
  if (facts.gpus > 0)
    add("memlock", kNoLimit,
        "InfiniBand and GPUDirect need locked memory: ulimit -l unlimited, LimitMEMLOCK=infinity");
}

/// A user without a name is usual in containers. What needs the name fails there.
void check_user(const DoctorFacts& facts, Checks& checks) {
  if (facts.has_user_name) return;
  Check check{"user", Verdict::Warning,
              "uid " + std::to_string(facts.uid) + " has no name (getpwuid fails)", ""};
  if (facts.home.empty())
    check.found += ", and HOME is not set";
  else if (!facts.home_is_writable)
    check.found += ", and HOME is " + facts.home + ", which cannot be written";
  check.remedy = "programs that ask for the name fail";
  if (facts.user_variable.empty() && !facts.has_compile_cache)
    check.remedy += ", among them torch.compile: set TORCHINDUCTOR_CACHE_DIR, or USER";
  if (facts.home.empty() || !facts.home_is_writable)
    check.remedy += "; set HOME to a folder of this user, for the caches of torch and others";
  checks.push_back(std::move(check));
}

void check_cgroup(const DoctorFacts& facts, Checks& checks) {
  Check check{"cgroup", Verdict::Ok, "no limits", ""};
  std::vector<std::string> found;
  const CgroupLimits& limits = facts.cgroup;
  if (limits.memory_max) {
    const std::uint64_t used = limits.memory_used.value_or(0);
    found.push_back("memory " + size_text(used) + " (without cached files) of " +
                    size_text(*limits.memory_max));
    if (used > *limits.memory_max / 10 * 9) {
      check.verdict = Verdict::Warning;
      check.remedy =
          "more than nine tenths are used: the kernel kills a worker at the limit. Raise the "
          "limit, or start fewer workers";
    }
  }
  if (limits.cores) {
    char text[64];
    std::snprintf(text, sizeof text, "%.1f of %u cores", *limits.cores, facts.cores);
    found.emplace_back(text);
    if (*limits.cores < facts.cores && check.verdict == Verdict::Ok) {
      check.verdict = Verdict::Warning;
      check.remedy = "--nproc-per-node=auto and cpu start a worker for each of the " +
                     std::to_string(facts.cores) +
                     " cores, and all share this quota: give a number";
    }
  }
  if (limits.pids_max) found.push_back(std::to_string(*limits.pids_max) + " processes and threads");
  if (!found.empty()) check.found = joined(found);
  if (limits.pids_max && *limits.pids_max < 512) {
    check.verdict = Verdict::Warning;
    check.remedy = "threads of ranks and data loaders count as well: raise pids.max or TasksMax=";
  }
  checks.push_back(std::move(check));
}

void check_folders(const DoctorFacts& facts, Checks& checks) {
  for (const FolderFacts& folder : facts.folders) {
    const std::string has = folder.path + " has " + size_text(folder.free_bytes) + " free";
    Check check{"folder", Verdict::Ok, folder.what + " " + has, ""};
    if (!folder.writable) {
      check.verdict = Verdict::Failure;
      check.found = folder.what + " " + folder.path + " cannot be written";
      check.remedy = "make it, give it to this user, or name another one";
    } else if (!folder.instead_of.empty()) {
      check.verdict = Verdict::Warning;
      check.found = folder.what + " " + folder.instead_of + " cannot be written; " + has;
      check.remedy = "temporary files go to the latter: let " + folder.what +
                     " name a folder on a local disk that this user may write";
    }
    if (folder.writable && folder.free_bytes < kGiB) {
      check.verdict = folder.free_bytes < 16 * kMiB ? Verdict::Failure : Verdict::Warning;
      check.remedy = "free some room: logs and checkpoints need it (--log-max-bytes bounds logs)";
    }
    checks.push_back(std::move(check));
  }
}

void check_programs(const DoctorFacts& facts, Checks& checks) {
  Check python{"python", Verdict::Ok, facts.python + " is " + facts.python_version, ""};
  if (facts.python.empty()) {
    python = {"python", Verdict::Note, facts.python_problem,
              "for Python scripts: activate the job's environment and run this again"};
  } else if (facts.torch_version.empty()) {
    python.verdict = Verdict::Note;
    python.found += ", without torch";
    python.remedy = "activate the job's environment and run this again";
  } else {
    python.found += ", torch " + facts.torch_version;
    if (!facts.nccl_version.empty()) python.found += ", NCCL " + facts.nccl_version;
  }
  if (facts.asked_python) checks.push_back(std::move(python));
  checks.push_back({"machine", Verdict::Ok,
                    std::to_string(facts.cores) + " cores, " + std::to_string(facts.numa_nodes) +
                        " NUMA " + (facts.numa_nodes == 1 ? "node, " : "nodes, ") +
                        std::to_string(facts.gpus) + " GPUs",
                    facts.numa_nodes > 1 ? "muster --numa-binding=node binds each worker to its "
                                           "GPU's NUMA node"
                                         : ""});
}

void check_gpu(const GpuFacts& gpu, std::size_t index, Checks& checks) {
  std::vector<std::string> found;
  Check check{"gpu", Verdict::Warning, "", ""};
  if (gpu.slowed_by_heat) found.emplace_back("slowed down by heat");
  if (gpu.slowed_by_power) found.emplace_back("slowed down by the power supply");
  if (!found.empty())
    check.remedy = "all ranks wait for the slowest one: look at cooling and power of this machine";
  if (gpu.uncorrected_errors > 0)
    found.push_back(std::to_string(gpu.uncorrected_errors) + " uncorrected memory errors");
  if (gpu.rows_pending) found.emplace_back("bad rows of memory wait for a reset to be replaced");
  if (gpu.uncorrected_errors > 0 || gpu.rows_pending)
    check.remedy =
        "reset it (nvidia-smi --gpu-reset, or restart the machine); if errors come back, "
        "have it replaced";
  if (gpu.rows_failed) {
    found.emplace_back("no spare rows are left for bad memory");
    check.verdict = Verdict::Failure;
    check.remedy = "have it replaced";
  }
  if (found.empty()) return;
  check.found = "GPU " + std::to_string(index) + " (" + gpu.name + "): " + joined(found);
  checks.push_back(std::move(check));
}

/// Whether the Xid only ends the program that caused it, or is no error any more, according to
/// NVIDIA's catalogue.
bool is_harmless(const Xid& xid) {
  switch (xid.number) {
    case 13:  // An exception in the program's kernels.
    case 31:  // The program accessed memory that does not exist.
    case 43:  // The program's work was stopped.
    case 45:  // The stopped work was cleaned up.
      return true;
    case 154:  // The action that the GPU needs has changed; 0x0 is none.
      return xid.text.find("to 0x0") != std::string::npos;
    default:
      return false;
  }
}

// The log does not say what was done to the GPU after an error.
void check_xids(const GpuErrors& errors, Checks& checks) {
  constexpr unsigned kFallenOffTheBus = 79;
  if (!errors.error.empty())
    checks.push_back({"gpu", Verdict::Note,
                      "the kernel's log cannot be read (" + errors.error +
                          "): errors of GPUs that it has (Xids) are not known",
                      "run this as root, or allow all to read it: sysctl kernel.dmesg_restrict=0"});
  for (const Xid& xid : errors.xids) {
    if (is_harmless(xid)) continue;
    Check check{"gpu", Verdict::Warning,
                "GPU " + xid.device + ": Xid " + std::to_string(xid.number) + ", " +
                    std::to_string(xid.times) + (xid.times == 1 ? " time, " : " times, last ") +
                    duration_text(std::max(0.0, errors.now_seconds - xid.last_seconds)) +
                    " ago: " + xid.text,
                "unless it was reset since: reset it (nvidia-smi --gpu-reset, or restart the "
                "machine); if the Xid comes back, have it replaced. NVIDIA's Xid catalogue "
                "explains each number"};
    if (xid.number == kFallenOffTheBus) {
      check.verdict = Verdict::Failure;
      check.remedy =
          "restart the machine, with its power off and on; if the error comes back, have the "
          "GPU and its slot looked at";
    }
    checks.push_back(std::move(check));
  }
}

void check_gpus(const DoctorFacts& facts, Checks& checks) {
  const std::size_t before = checks.size();
  const GpuHealth& health = facts.gpu_health;
  if (!health.error.empty())
    checks.push_back({"gpu", Verdict::Failure, health.error,
                      "does nvidia-smi work? Driver and its library may be of different versions "
                      "after an upgrade: restart the machine"});
  for (std::size_t i = 0; i < health.gpus.size(); ++i)
    check_gpu(health.gpus[i], i, checks);
  if (facts.torch_gpus && *facts.torch_gpus < facts.gpus) {
    Check check{"gpu", Verdict::Note,
                "the driver has " + std::to_string(facts.gpus) + " GPUs, torch sees " +
                    std::to_string(*facts.torch_gpus),
                "CUDA_VISIBLE_DEVICES=" + facts.visible_gpus + " leaves the others out"};
    if (facts.visible_gpus.empty()) {
      check.verdict = Verdict::Warning;
      check.remedy =
          "install a torch that is built for this driver's CUDA: "
          "python3 -c 'import torch; torch.cuda.init()' says what is wrong";
    }
    checks.push_back(std::move(check));
  }
  check_xids(facts.gpu_errors, checks);
  if (checks.size() == before && !health.gpus.empty())
    checks.push_back({"gpu", Verdict::Ok,
                      std::to_string(health.gpus.size()) + " GPUs (" + health.gpus.front().name +
                          "), no errors, none slowed down",
                      ""});
}

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::Ok:
      return "ok";
    case Verdict::Note:
      return "note";
    case Verdict::Warning:
      return "warning";
    case Verdict::Failure:
      return "failure";
  }
  return "failure";
}

}  // namespace

std::vector<Check> judge(const DoctorFacts& facts) {
  Checks checks;
  check_host_name(facts, checks);
  check_user(facts, checks);
  check_interfaces(facts, checks);
  check_endpoints(facts, checks);
  check_shared_memory(facts, checks);
  check_limits(facts, checks);
  check_cgroup(facts, checks);
  check_folders(facts, checks);
  check_programs(facts, checks);
  check_gpus(facts, checks);
  return checks;
}

bool has_failure(const std::vector<Check>& checks) {
  return std::any_of(checks.begin(), checks.end(),
                     [](const Check& check) { return check.verdict == Verdict::Failure; });
}

namespace {

/// Adds the row, and further ones if its text does not fit beside the first two cells.
void add_check_row(std::vector<Row>& rows, Row row, std::size_t width) {
  const std::string lines = width == 0 ? row.back() : wrapped_text(row.back(), 0, width);
  std::string_view rest = lines;
  do {
    row.back() = take_line(rest);
    rows.push_back(std::move(row));
    row = {"", "", ""};
  } while (!rest.empty());
}

/// The columns that are left of `columns` for the texts of these checks.
std::size_t text_width(const std::vector<Check>& checks, std::size_t columns) {
  std::size_t name = 0;
  for (const Check& check : checks)
    name = std::max(name, check.name.size());
  const std::size_t before = std::string_view("failure  ").size() + name + 2;
  return columns > before ? columns - before : columns;
}

}  // namespace

std::string checks_text(const std::vector<Check>& checks, std::size_t columns) {
  const std::size_t width = text_width(checks, columns);
  std::vector<Row> rows;
  for (const Check& check : checks) {
    // The table above has a row for each node, which is enough for nodes that are well: there may
    // be hundreds.
    if (check.verdict == Verdict::Ok && !check.peer.empty()) continue;
    const std::string about = check.peer.empty() ? std::string() : check.peer + ": ";
    add_check_row(rows,
                  {std::string(to_string(check.verdict)), check.name, safe(about + check.found)},
                  width);
    if (!check.remedy.empty()) add_check_row(rows, {"", "", "-> " + safe(check.remedy)}, width);
  }
  const auto count = [&](Verdict verdict, std::string_view what) {
    const auto found = std::count_if(checks.begin(), checks.end(),
                                     [&](const Check& check) { return check.verdict == verdict; });
    return std::to_string(found).append(" ").append(what) + (found == 1 ? "" : "s");
  };
  return table_text(rows) + "\n" + count(Verdict::Failure, "failure") + ", " +
         count(Verdict::Warning, "warning") + "\n";
}

std::string checks_json(const std::vector<Check>& checks, const std::string& peers) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const Check& check : checks) {
    Json one{{"name", check.name},
             {"verdict", to_string(check.verdict)},
             {"found", check.found},
             {"remedy", check.remedy}};
    if (!check.peer.empty()) one["peer"] = check.peer;
    list.push_back(std::move(one));
  }
  Json all{{"ok", !has_failure(checks)}, {"checks", std::move(list)}};
  if (!peers.empty()) all["peers"] = Json::parse(peers);
  return all.dump(2, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n";
}

}  // namespace muster::ctl
