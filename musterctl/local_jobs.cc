#include "musterctl/local_jobs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/run_id_file_name.h"
#include "base/size_text.h"
#include "musterctl/process_texts.h"
#include "musterctl/run_text.h"

namespace muster::ctl {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{2} << 20;  // Linux has no larger environment.

struct Entry {
  int pid = 0;
  int parent = 0;
  int session = 0;
  std::string name;
  double cpu_seconds = 0;
  std::uint64_t resident_bytes = 0;
};

template <typename Number>
std::optional<Number> to_number(std::string_view text) {
  Number number{};
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text(kMaxFileBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.gcount() == 0 && file.bad()) return std::nullopt;
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

std::optional<Entry> entry_of(int pid, std::string_view stat) {
  auto fields = parse_stat_fields(stat);
  if (!fields) return std::nullopt;
  return Entry{.pid = pid,
               .parent = fields->parent,
               .session = fields->session,
               .name = std::move(fields->name),
               .cpu_seconds = fields->cpu_ticks / static_cast<double>(::sysconf(_SC_CLK_TCK)),
               .resident_bytes =
                   fields->resident_pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))};
}

std::map<int, Entry> all_entries(const std::string& proc) {
  std::map<int, Entry> entries;
  std::error_code ec;
  for (std::filesystem::directory_iterator file(proc, ec), end; !ec && file != end;
       file.increment(ec)) {
    const auto pid = to_number<int>(file->path().filename().string());
    if (!pid) continue;
    const auto stat = read_file(file->path().string() + "/stat");
    if (!stat) continue;
    if (auto entry = entry_of(*pid, *stat)) entries.emplace(*pid, std::move(*entry));
  }
  return entries;
}

bool may_read_environment(const std::string& proc, int pid) {
  const int fd =
      ::open((proc + "/" + std::to_string(pid) + "/environ").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno != EACCES && errno != EPERM;
  ::close(fd);
  return true;
}

Environment environment_of(const std::string& proc, int pid) {
  return parse_environment(read_file(proc + "/" + std::to_string(pid) + "/environ").value_or(""));
}

// False: it has ended, if only a moment ago.
bool still_runs(const std::string& proc, int pid) {
  const auto stat = read_file(proc + "/" + std::to_string(pid) + "/stat");
  return stat && parse_stat_fields(*stat);
}

// A child of the shim: a worker, or a program that the shim runs for logs and stacks. `variables`:
// its environment.
bool is_worker(const std::string& proc, const Entry& entry, const Environment& variables) {
  if (variables.contains("RANK")) return variables.contains("MUSTER_JOB");
  // setproctitle overwrites the environment that the kernel shows. The shim's programs have the
  // agent's environment, and each worker has a session of its own.
  return entry.session == entry.pid && !variables.contains("PATH") && still_runs(proc, entry.pid);
}

template <typename Number>
std::optional<Number> number_of(const Environment& variables, const std::string& name) {
  const auto found = variables.find(name);
  return found == variables.end() ? std::nullopt : to_number<Number>(found->second);
}

WorkerProcess worker_of(const std::string& proc, const Entry& entry,
                        const std::map<int, Entry>& entries, const Environment& variables) {
  WorkerProcess worker{.pid = entry.pid, .processes = 0};
  worker.rank = number_of<int>(variables, "RANK");
  worker.local_rank = number_of<int>(variables, "LOCAL_RANK");
  worker.command =
      command_text(read_file(proc + "/" + std::to_string(entry.pid) + "/cmdline").value_or(""));
  for (const auto& [pid, other] : entries) {
    if (pid != entry.pid && other.session != entry.pid) continue;
    ++worker.processes;
    worker.cpu_seconds += other.cpu_seconds;
    worker.resident_bytes += other.resident_bytes;
  }
  return worker;
}

// Reads the file in memory in which the agent keeps the run id. Empty: the agent has just started,
// or its files may not be read.
std::string run_id_of_agent(const std::string& proc, int pid) {
  const std::string wanted = std::string("/memfd:") + kRunIdFileName + " (deleted)";
  std::error_code ec;
  for (std::filesystem::directory_iterator fd(proc + "/" + std::to_string(pid) + "/fd", ec), end;
       !ec && fd != end; fd.increment(ec)) {
    std::error_code gone;
    if (std::filesystem::read_symlink(fd->path(), gone) == wanted && !gone)
      return read_file(fd->path().string()).value_or("");
  }
  return {};
}

// Nothing if the environment of its workers may not be read.
std::optional<LocalJob> job_of(const std::string& proc, const Entry& shim,
                               const std::map<int, Entry>& entries) {
  LocalJob job{.shim_pid = shim.pid};
  bool unreadable = false;
  for (const auto& [pid, entry] : entries) {
    if (entry.parent != shim.pid) continue;
    if (entry.name == "muster-agent") {
      job.agent_pid = pid;
      if (job.run_id.empty()) job.run_id = run_id_of_agent(proc, pid);
      continue;
    }
    if (entry.name == "muster-zygote") {
      job.zygote = ZygoteProcess{
          .pid = pid,
          .resident_bytes = entry.resident_bytes,
          .shares = parse_memory_shares(
              read_file(proc + "/" + std::to_string(pid) + "/smaps_rollup").value_or(""))};
      continue;
    }
    if (!may_read_environment(proc, pid)) {
      unreadable = true;
      continue;
    }
    const Environment variables = environment_of(proc, pid);
    if (!is_worker(proc, entry, variables)) continue;
    job.workers.push_back(worker_of(proc, entry, entries, variables));
    if (const auto id = variables.find("TORCHELASTIC_RUN_ID"); id != variables.end())
      job.run_id = id->second;
    if (!variables.contains("RANK")) continue;
    job.restarts = number_of<int>(variables, "TORCHELASTIC_RESTART_COUNT");
    job.restarts_allowed = number_of<int>(variables, "TORCHELASTIC_MAX_RESTARTS");
    job.generation = number_of<std::int64_t>(variables, "MUSTER_GENERATION");
  }
  if (job.workers.empty() && unreadable) return std::nullopt;
  std::sort(job.workers.begin(), job.workers.end(), [](const auto& a, const auto& b) {
    return std::pair(a.rank, a.pid) < std::pair(b.rank, b.pid);
  });
  return job;
}

std::string zygote_text(const ZygoteProcess& zygote) {
  std::string text =
      "  zygote " + std::to_string(zygote.pid) + "  memory " + size_text(zygote.resident_bytes);
  if (zygote.shares)
    text += ": its own " + size_text(zygote.shares->own_bytes) + ", shared " +
            size_text(zygote.resident_bytes -
                      std::min(zygote.shares->own_bytes, zygote.resident_bytes)) +
            ", its proportional share " + size_text(zygote.shares->proportional_bytes);
  return text + "\n";
}

std::string shown(const std::optional<int>& number) {
  return number ? std::to_string(*number) : "-";
}

}  // namespace

LocalJobs find_local_jobs(const std::string& proc) {
  const auto entries = all_entries(proc);
  LocalJobs found;
  for (const auto& [pid, entry] : entries) {
    if (entry.name != "muster-shim") continue;
    if (auto job = job_of(proc, entry, entries))
      found.jobs.push_back(std::move(*job));
    else
      ++found.unreadable;
  }
  return found;
}

std::string local_jobs_text(const LocalJobs& jobs) {
  std::string text;
  for (const LocalJob& job : jobs.jobs) {
    text += "run " + (job.run_id.empty() ? "-" : safe(job.run_id)) + "  agent " +
            (job.agent_pid == 0 ? "-" : std::to_string(job.agent_pid)) + "  shim " +
            std::to_string(job.shim_pid) + "  restarts " + shown(job.restarts) + "/" +
            shown(job.restarts_allowed);
    if (job.generation) text += "  generation " + std::to_string(*job.generation);
    text += "\n";
    if (job.zygote) text += zygote_text(*job.zygote);
    if (job.workers.empty()) {
      text += "  no worker runs: it waits for other nodes, or it begins or ends\n";
      continue;
    }
    std::vector<Row> rows{{"  RANK", "LOCAL", "PID", "PROCESSES", "CPU", "MEMORY", "COMMAND"}};
    for (const WorkerProcess& worker : job.workers)
      rows.push_back({"  " + shown(worker.rank), shown(worker.local_rank),
                      std::to_string(worker.pid), std::to_string(worker.processes),
                      duration_text(worker.cpu_seconds), size_text(worker.resident_bytes),
                      safe(worker.command)});
    text += table_text(rows);
  }
  if (jobs.unreadable > 0)
    text += std::to_string(jobs.unreadable) +
            " jobs of other users are left out: their workers may not be read (run it as root)\n";
  return text.empty() ? "no jobs of muster run on this machine\n" : text;
}

std::string local_jobs_json(const LocalJobs& jobs) {
  using Json = nlohmann::ordered_json;
  const auto or_null = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
  Json list = Json::array();
  for (const LocalJob& job : jobs.jobs) {
    Json zygote;
    if (job.zygote) {
      zygote = {{"pid", job.zygote->pid}, {"resident_bytes", job.zygote->resident_bytes}};
      const auto& shares = job.zygote->shares;
      zygote["own_bytes"] = shares ? Json(shares->own_bytes) : Json(nullptr);
      zygote["proportional_bytes"] = shares ? Json(shares->proportional_bytes) : Json(nullptr);
    }
    Json workers = Json::array();
    for (const WorkerProcess& worker : job.workers)
      workers.push_back({{"rank", or_null(worker.rank)},
                         {"local_rank", or_null(worker.local_rank)},
                         {"pid", worker.pid},
                         {"processes", worker.processes},
                         {"cpu_seconds", worker.cpu_seconds},
                         {"resident_bytes", worker.resident_bytes},
                         {"command", worker.command}});
    list.push_back({{"run", job.run_id},
                    {"agent_pid", job.agent_pid},
                    {"shim_pid", job.shim_pid},
                    {"restarts", or_null(job.restarts)},
                    {"restarts_allowed", or_null(job.restarts_allowed)},
                    {"generation", or_null(job.generation)},
                    {"zygote", std::move(zygote)},
                    {"workers", std::move(workers)}});
  }
  const Json all{{"jobs", std::move(list)}, {"unreadable", jobs.unreadable}};
  return all.dump(2, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n";
}

}  // namespace muster::ctl
