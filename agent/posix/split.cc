#include "agent/posix/split.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "agent/posix/bounded_child.h"
#include "agent/posix/child_signals.h"
#include "agent/posix/front.h"
#include "agent/posix/process_scan.h"
#include "agent/posix/shim.h"
#include "agent/posix/shim_protocol.h"
#include "base/limit_advice.h"
#include "base/system/standard_streams.h"

namespace muster {
namespace {

// The files may be on a file server that does not answer.
constexpr std::chrono::milliseconds kRemoveFilesLimit{2000};
constexpr std::chrono::milliseconds kReportLimit{5000};

/// Whether this signal is ignored by the calling process.
bool is_ignored(int number) {
  struct sigaction action {};
  ::sigaction(number, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

/// The signals that are blocked or ignored when a worker starts, as for workers of torchrun. A
/// signal that is blocked or ignored now stays so. Not ignored are `handled` signals, those that a
/// Python process resets before it starts another one, and SIGCHLD: a program that ignores it
/// cannot learn how its children end.
SignalState signals_for_workers(const sigset_t& handled) {
  SignalState state;
  ::sigprocmask(SIG_SETMASK, nullptr, &state.mask);
  ::sigemptyset(&state.ignored);
  for (int number = 1; number < NSIG; ++number) {
    if (number == SIGPIPE || number == SIGXFSZ || number == SIGCHLD) continue;
    if (::sigismember(&handled, number) != 1 && is_ignored(number))
      ::sigaddset(&state.ignored, number);
  }
  return state;
}

/// Raises the calling process' limit of open files to the hard limit. Returns the limit before, for
/// the workers.
rlimit raise_descriptor_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  rlimit raised = limit;
  raised.rlim_cur = raised.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &raised);
  return limit;
}

/// Whether --signals-to-handle names the signal.
bool is_listed(const SplitOptions& options, int number) {
  return std::find(options.signals.begin(), options.signals.end(), number) != options.signals.end();
}

/// The signals that the front reads from a descriptor.
sigset_t watched_signals(const SplitOptions& options) {
  sigset_t watched = signal_set(SIGCHLD);
  if (!is_ignored(SIGTSTP)) ::sigaddset(&watched, SIGTSTP);
  for (const int number : options.signals)
    if (number != SIGHUP || !is_ignored(SIGHUP)) ::sigaddset(&watched, number);
  if (!is_ignored(SIGINT)) ::sigaddset(&watched, SIGINT);
  for (const int number : options.forwarded)
    ::sigaddset(&watched, number);
  for (const int number : options.requests)
    ::sigaddset(&watched, number);
  return watched;
}

// After this, signals of the terminal and of the job's process group do not reach the calling
// process. The front passes them on to the shim.
void leave_the_terminal(const char* name, const SplitOptions& options, const sigset_t& blocked) {
  ::setsid();
  ::prctl(PR_SET_NAME, name);
  for (const int number : options.signals)
    ::signal(number, SIG_IGN);
  for (const int number : options.forwarded)
    ::signal(number, SIG_IGN);
  for (const int number : options.requests)
    ::signal(number, SIG_IGN);
  ::sigprocmask(SIG_SETMASK, &blocked, nullptr);
}

void warn_without_proc() {
  if (proc_shows_own_pids()) return;
  const bool is_mounted = ::access("/proc/self/stat", R_OK) == 0;
  std::fprintf(stderr, "muster: %s: what workers start may stay when they have ended\n",
               is_mounted ? "/proc shows another pid namespace (unshare has --mount-proc for that)"
                          : "there is no /proc");
}

/// fork(), or -1 with a message.
pid_t fork_one() {
  const pid_t pid = ::fork();
  if (pid < 0)
    std::fprintf(stderr, "muster: fork: %s%s\n", std::strerror(errno),
                 start_limit_advice(errno).c_str());
  return pid;
}

/// A connected pair, or {-1, -1} with a message.
std::pair<int, int> make_pair() {
  const Result<std::pair<int, int>> pair = make_shim_pair();
  if (pair) return *pair;
  std::fprintf(stderr, "muster: socketpair: %s%s\n", pair.error().message().c_str(),
               limit_advice(pair.error().value()).c_str());
  return {-1, -1};
}

/// Makes the front exit with 1 and print no further message.
int end_with_failure(const ShimSetup& setup) {
  [[maybe_unused]] const auto error = send_message(setup.front_socket, Outcome{.exit_code = 1});
  return 1;
}

int become_shim(ShimSetup setup, const SplitOptions& options,
                const std::function<int(int socket)>& agent_main) {
  leave_the_terminal("muster-shim", options, setup.watched);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  setup.workers.not_default = signals_not_default();
  setup.workers.file_limit = raise_descriptor_limit();
  const std::pair<int, int> pair = make_pair();
  if (pair.first < 0) return end_with_failure(setup);
  setup.agent_socket = pair.first;
  setup.agent = fork_one();
  if (setup.agent < 0) return end_with_failure(setup);
  if (setup.agent == 0) {
    ::close(pair.first);
    ::close(setup.front_socket);
    leave_the_terminal("muster-agent", options, setup.workers.signals.mask);
    return agent_main(pair.second);
  }
  ::close(pair.second);
  take_signals_of_all_threads(setup.watched);
  run_shim(setup);
  return 0;
}

}  // namespace

int split_into_front_shim_and_agent(const SplitOptions& options,
                                    const std::function<int(int socket)>& agent_main) {
  open_missing_standard_streams();  // Workers inherit them.
  warn_without_proc();
  const std::pair<int, int> pair = make_pair();
  if (pair.first < 0) return 1;
  FrontSetup front{
      .socket = pair.first,
      .watched = watched_signals(options),
      .cgroup = options.cgroup,
      .report_lost_process =
          [&options](const LostProcess& lost) {
            run_in_bounded_child([&] { options.report_lost_process(lost); }, kReportLimit);
          },
      .remove_files =
          [&options] { run_in_bounded_child(options.remove_files, kRemoveFilesLimit); }};
  front.stops = !is_listed(options, SIGTSTP) && ::sigismember(&front.watched, SIGTSTP) == 1;
  front.ignores_keys = is_ignored(SIGHUP) && is_ignored(SIGINT);
  SignalState worker_signals = signals_for_workers(front.watched);
  for (const int number : options.ignored_by_workers)
    ::sigaddset(&worker_signals.ignored, number);
  sigset_t shim_watched = front.watched;
  if (front.stops) ::sigdelset(&shim_watched, SIGTSTP);
  front.spared = own_children().value_or(std::set<pid_t>());
  // The front alone is in the session of the console.
  front.resizes = ::isatty(STDERR_FILENO) == 1 && ::sigismember(&front.watched, SIGWINCH) == 0;
  if (front.resizes) ::sigaddset(&front.watched, SIGWINCH);
  ::sigprocmask(SIG_BLOCK, &front.watched, nullptr);
  take_signals_of_all_threads(front.watched);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // A write beyond the limit of a file's size then returns an error.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);

  const pid_t front_pid = ::getpid();
  front.shim = fork_one();
  if (front.shim < 0) return 1;
  if (front.shim == 0) {
    stop_taking_signals(front.watched);
    ::close(pair.first);
    std::_Exit(become_shim({.front = front_pid,
                            .front_socket = pair.second,
                            .workers = {.signals = worker_signals},
                            .warm = options.warm,
                            .cgroup = options.cgroup,
                            .watched = shim_watched,
                            .requests = options.requests,
                            .forwarded = options.forwarded,
                            .shutdown_timeout = options.shutdown_timeout,
                            .until_group = options.until_group,
                            .clean_up = options.clean_up,
                            .report_lost_process = front.report_lost_process,
                            .remove_files = front.remove_files},
                           options, agent_main));
  }
  ::close(pair.second);
  return run_front(front);
}

}  // namespace muster
