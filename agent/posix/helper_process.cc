#include "agent/posix/helper_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "agent/posix/kernel_calls.h"
#include "agent/posix/process_scan.h"
#include "agent/posix/spawn.h"
#include "base/from_errno.h"

namespace muster {
namespace {

constexpr int kEndLimitMs = 100;    // The longest wait for a helper's end after SIGKILL.
constexpr int kMaxAncestors = 256;  // That leader_of() reads, about 10 us each.

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (const std::string& word : words)
    pointers.push_back(const_cast<char*>(word.c_str()));  // execve's type; it does not write.
  pointers.push_back(nullptr);
  return pointers;
}

struct HelperCommand {
  HelperCommand(std::vector<std::string> command_words, std::vector<std::string> command_variables)
      : words(std::move(command_words)), variables(std::move(command_variables)) {
    ::sigemptyset(&signals.mask);
    ::sigemptyset(&signals.ignored);
  }
  std::vector<std::string> words;
  std::vector<std::string> variables;
  std::vector<char*> argv = pointers_to(words);
  std::vector<char*> env = pointers_to(variables);
  SignalState signals;
};

// The worker that `pid` belongs to; 0: it belongs to none.
pid_t leader_of(pid_t pid, const std::set<pid_t>& leaders) {
  // Reads only the parents: hundreds of timers can run out together, and a scan of /proc for each
  // of them would stop the agent for seconds. /proc is not read in one instant, so the parents may
  // form a circle: the loop is bounded.
  for (int i = 0; i <= kMaxAncestors; ++i) {
    const std::optional<Process> process = read_process(pid);
    if (!process || !is_alive(*process)) return 0;
    if (leaders.contains(pid)) return pid;
    if (leaders.contains(process->session)) return process->session;
    pid = process->parent;
  }
  return 0;
}

}  // namespace

Result<HelperProcess> HelperProcess::start(const std::vector<std::string>& argv,
                                           const std::vector<std::string>& environment) {
  HelperProcess helper;
  helper.output_ = OwnedFd(make_memory_file("muster-helper-output"));
  const int output = helper.output_.get();
  if (output < 0) return from_errno(errno);
  const OwnedFd input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!input.is_open()) return from_errno(errno);
  if (const auto error = helper.spawn(argv, environment, {input.get(), output, output}))
    return error;
  return helper;
}

Result<HelperProcess> HelperProcess::start_on_socket(const std::vector<std::string>& argv,
                                                     const std::vector<std::string>& environment,
                                                     int socket) {
  HelperProcess helper;
  if (const auto error = helper.spawn(argv, environment, {socket, -1, -1})) return error;
  return helper;
}

Result<HelperProcess> HelperProcess::start_with_stdout(const std::vector<std::string>& argv,
                                                       const std::vector<std::string>& environment,
                                                       int output) {
  HelperProcess helper;
  const OwnedFd input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!input.is_open()) return from_errno(errno);
  if (const auto error = helper.spawn(argv, environment, {input.get(), output, -1})) return error;
  return helper;
}

boost::system::error_code HelperProcess::spawn(const std::vector<std::string>& argv,
                                               const std::vector<std::string>& environment,
                                               const std::array<int, 3>& fds) {
  const auto command = std::make_shared<HelperCommand>(argv, environment);
  BegunSpawn child = begin_spawn({.path = command->argv[0],
                                  .argv = command->argv.data(),
                                  .env = command->env.data(),
                                  .fds = fds,
                                  .signals = &command->signals,
                                  .owner = command});
  if (child.error != 0) return from_errno(child.error);
  pid_ = child.pid;
  pidfd_ = std::move(child.pidfd);
  status_ = std::move(child.status);
  memory_ = std::move(child.memory);
  return {};
}

boost::system::error_code HelperProcess::start_error() {
  const auto result = spawn_result(status_.get());
  return result && result->error != 0 ? from_errno(result->error) : boost::system::error_code();
}

// It is not reaped yet: the pid is still its own, and that of the group that it leads.
void HelperProcess::signal(int number) const {
  if (!pidfd_.is_open()) return;
  ::kill(-pid_, number);
  ::kill(pid_, number);  // It may have left its group, or not be its leader yet.
}

bool HelperProcess::finish() {
  if (!pidfd_.is_open()) return false;
  pollfd ended{pidfd(), POLLIN, 0};
  // It is not reaped yet: the pid is still its own, and that of the group that it leads. A helper
  // that hangs may wait for a program of its own. One that has ended may leave processes.
  if (::poll(&ended, 1, 0) != 1) {
    ::kill(-pid_, SIGKILL);
    ::kill(pid_, SIGKILL);  // It may have left its group.
  }
  // A process that waits in the kernel for a dead disk does not end. When it ends later, it stays a
  // zombie until the agent ends.
  ::poll(&ended, 1, kEndLimitMs);
  siginfo_t info{};
  while (::waitid(P_PIDFD, static_cast<id_t>(pidfd()), &info, WEXITED | WNOHANG) != 0 &&
         errno == EINTR) {
  }
  pidfd_.reset();
  if (info.si_pid == 0) return false;
  exit_ = WorkerExit{.killed = info.si_code != CLD_EXITED, .status = info.si_status};
  return exit_->ok();
}

std::string HelperProcess::output(std::size_t bytes_max) const {
  std::string text(bytes_max, '\0');
  std::size_t size = 0;
  while (size < bytes_max) {
    const ssize_t n =
        ::pread(output_.get(), text.data() + size, bytes_max - size, static_cast<off_t>(size));
    if (n <= 0) break;
    size += static_cast<std::size_t>(n);
  }
  text.resize(size);
  return text;
}

pid_t signal_family_member(pid_t pid, const std::set<pid_t>& leaders, int number) {
  if (pid <= 1) return 0;
  pid_t leader = 0;
  const auto is_member = [&] {
    leader = leader_of(pid, leaders);
    return leader != 0;
  };
  return signal_if(pid, number, is_member) ? leader : 0;
}

void resume_process(pid_t pid, const std::set<pid_t>& leaders) {
  signal_family_member(pid, leaders, SIGCONT);
}

}  // namespace muster
