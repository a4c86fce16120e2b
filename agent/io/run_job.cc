#include "agent/io/run_job.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/worker_env.h"
#include "agent/io/agent.h"
#include "agent/io/failure_output.h"
#include "agent/io/run_files.h"
#include "agent/posix/bounded_child.h"
#include "agent/posix/kernel_calls.h"
#include "agent/posix/split.h"
#include "rendezvous/core/run_id_file_name.h"
#include "rendezvous/net/owned_fd.h"

namespace muster {
namespace {

constexpr std::chrono::seconds kStorageLimit(5);

/// Writes the run id to a file in memory. While the descriptor is open, `musterctl ps` finds it
/// among the agent's descriptors in /proc, also before a worker runs. If the file cannot be
/// written, the descriptor is not open, and the job goes on without it.
OwnedFd publish_run_id(std::string_view run_id) {
  OwnedFd file(make_memory_file(kRunIdFileName));
  if (::write(file.get(), run_id.data(), run_id.size()) != static_cast<ssize_t>(run_id.size()))
    file.reset();  // For example with `ulimit -f 0`.
  return file;
}

}  // namespace

std::optional<std::string> reason_not_to_run() {
  return missing_kernel_feature();
}

std::optional<std::string> ask_storage(const std::function<std::string()>& ask) {
  return answer_in_time(ask, kStorageLimit);
}

int run_job(const AgentOptions& options, const std::vector<std::string>& environment) {
  std::vector<std::string> inherited = inherited_by_workers(environment, options);
  RunFiles run_files = RunFiles::choose(options, inherited);
  // SIGUSR2 asks for stacks, unless it is one of the signals that end the job.
  const auto& handled = options.signals_to_handle;
  const bool is_free = std::find(handled.begin(), handled.end(), SIGUSR2) == handled.end();
  const pid_t launcher = ::getpid();
  return split_into_front_shim_and_agent(
      {.signals = handled,
       .request_signal = is_free ? SIGUSR2 : 0,
       .shutdown_timeout =
           std::chrono::duration_cast<std::chrono::milliseconds>(options.shutdown_timeout),
       .report_lost_agent = [&options](const LostAgent& lost) { report_lost_agent(options, lost); },
       .remove_files = [&run_files] { run_files.remove_for_lost_agent(); }},
      [&](int socket) {
        const OwnedFd published = publish_run_id(options.run_id);
        return run_agent(options, {.environment = inherited,
                                   .run_files = run_files,
                                   .socket = socket,
                                   .launcher_pid = launcher});
      });
}

}  // namespace muster
