#include "agent/io/run_job.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/leftovers.h"
#include "agent/core/preemption.h"
#include "agent/core/worker_env.h"
#include "agent/io/agent.h"
#include "agent/io/failure_output.h"
#include "agent/io/run_files.h"
#include "agent/posix/bounded_child.h"
#include "agent/posix/kernel_calls.h"
#include "agent/posix/split.h"
#include "base/hex.h"
#include "base/run_id_file_name.h"
#include "base/system/owned_fd.h"
#include "base/system/system_random.h"

namespace muster {
namespace {

constexpr std::chrono::seconds kStorageLimit(5);

/// Without the signals that this process has inherited as ignored: its parent does not mean them
/// for the workers, which ignore them, too.
std::vector<int> forwarded_signals(const AgentOptions& options) {
  std::vector<int> numbers = options.signals_to_forward;
  std::erase_if(numbers, [&options](int number) {
    struct sigaction action {};
    ::sigaction(number, nullptr, &action);
    return !options.forwards_ignored && action.sa_handler == SIG_IGN;
  });
  return numbers;
}

std::vector<int> numbers_of(const std::vector<NoticeSignal>& signals) {
  std::vector<int> numbers;
  numbers.reserve(signals.size());
  for (const NoticeSignal& notice : signals)
    numbers.push_back(notice.number);
  return numbers;
}

/// SIGUSR2 asks for stacks, unless it has another meaning or was inherited as ignored. Those of
/// --notice-signals are asked for, so they count in any case.
std::vector<int> request_signals(const AgentOptions& options, const std::vector<int>& forwarded) {
  std::vector<int> numbers = numbers_of(options.notice_signals);
  const auto has = [](const std::vector<int>& list, int number) {
    return std::count(list.begin(), list.end(), number) > 0;
  };
  struct sigaction action {};
  ::sigaction(SIGUSR2, nullptr, &action);
  if (action.sa_handler != SIG_IGN && !has(options.signals_to_handle, SIGUSR2) &&
      !has(forwarded, SIGUSR2) && !has(numbers, SIGUSR2))
    numbers.push_back(SIGUSR2);
  return numbers;
}

/// Writes the run id to a file in memory. While the descriptor is open, `musterctl ps` finds it
/// among the agent's descriptors in /proc, also before a worker runs. If the file cannot be
/// written, the descriptor is not open, and the job goes on without it.
OwnedFd publish_run_id(std::string_view run_id) {
  OwnedFd file(make_memory_file(kRunIdFileName));
  if (::write(file.get(), run_id.data(), run_id.size()) != static_cast<ssize_t>(run_id.size()))
    file.reset();  // For example with `ulimit -f 0`.
  return file;
}

/// Gives this process room for many descriptors while it has one thread. Later, each doubling of
/// the table makes the thread that opens a descriptor wait for all processors: some 10 ms.
void make_room_for_descriptors() {
  constexpr int kLast = 255;
  OwnedFd(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, kLast));  // Fails with a small `ulimit -n`.
}

/// A name for the workers' cgroup. It is random: pids repeat, because each pid namespace counts its
/// own. Empty if the kernel gives no random numbers: the job then has no cgroup.
std::string new_cgroup_name() {
  std::array<std::uint8_t, 8> bytes{};
  if (!fill_random(bytes)) return {};
  return "muster-" + to_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

std::optional<std::string> reason_not_to_run() {
  return missing_kernel_feature();
}

std::optional<std::string> ask_storage(const std::function<std::string()>& ask) {
  return answer_in_time(ask, kStorageLimit);
}

int run_job(const AgentOptions& options, const std::vector<std::string>& environment) {
  const std::vector<std::string> inherited = inherited_by_workers(environment, options);
  RunFiles run_files = RunFiles::choose(options, inherited);
  const std::vector<int> forwarded = forwarded_signals(options);
  const pid_t launcher = ::getpid();
  const std::string cgroup = new_cgroup_name();
  return split_into_front_shim_and_agent(
      {.signals = options.signals_to_handle,
       .requests = request_signals(options, forwarded),
       .forwarded = forwarded,
       // Slurm signals every process of a step, so the workers, too. It means them no harm.
       .ignored_by_workers = numbers_of(options.notice_signals),
       .warm = options.warm ? std::optional(WarmSetup{.program = options.warm->program,
                                                      .modules = options.warm->modules})
                            : std::nullopt,
       .cgroup = cgroup,
       .shutdown_timeout =
           std::chrono::duration_cast<std::chrono::milliseconds>(options.shutdown_timeout),
       .until_group = std::chrono::duration_cast<std::chrono::milliseconds>(
           options.signal_to_leader ? own_share(options.shutdown_timeout) : Duration{}),
       .clean_up = clean_up_times(options.leftover_timeout, options.shutdown_timeout),
       .report_lost_process =
           [&options](const LostProcess& lost) { report_lost_process(options, lost); },
       .remove_files = [&run_files] { run_files.remove_for_lost_agent(); }},
      [&](int socket) {
        make_room_for_descriptors();
        const OwnedFd published = publish_run_id(options.run_id);
        return run_agent(options, {.environment = inherited,
                                   .run_files = run_files,
                                   .socket = socket,
                                   .cgroup = cgroup,
                                   .launcher_pid = launcher});
      });
}

}  // namespace muster
