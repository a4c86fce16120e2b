#include "agent/posix/bounded_child.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>

#include "agent/core/watched_time.h"
#include "agent/posix/write_all.h"
#include "base/system/clock.h"
#include "base/system/owned_fd.h"

namespace muster {

using namespace std::chrono_literals;

namespace {

constexpr std::chrono::milliseconds kPrintLimit = 2s;

bool has_ended(pid_t child, siginfo_t& info) {
  info = {};
  if (::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG) == 0)
    return info.si_pid == child;
  int status = 0;  // A seccomp profile may refuse waitid().
  if (errno == ECHILD || ::waitpid(child, &status, WNOHANG) != child) return false;
  info.si_pid = child;
  info.si_code = WIFEXITED(status) ? CLD_EXITED : CLD_KILLED;
  info.si_status = WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status);
  return true;
}

/// Runs `work` in a forked child, as run_in_bounded_child() does. No value if fork() fails.
std::optional<bool> fork_and_wait(const std::function<void()>& work,
                                  std::chrono::milliseconds limit) {
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return std::nullopt;
  if (child == 0) {
    // Else a signal that ends the parent leaves the child, which may wait for storage for ever.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    try {
      work();
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  siginfo_t info{};
  const OwnedFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  if (pidfd.is_open()) {
    pollfd ended{pidfd.get(), POLLIN, 0};
    WatchedWait wait(now());
    while (wait.advance(now()) < limit &&
           ::poll(&ended, 1, static_cast<int>(wait.until_next_check(limit) / 1ms) + 1) == 0) {
    }
  } else {  // No descriptor is left: polls for the child's end.
    for (auto waited = limit; waited.count() > 0 && !has_ended(child, info);
         waited -= std::chrono::milliseconds(10))
      ::poll(nullptr, 0, 10);
  }
  if (info.si_pid != child && !has_ended(child, info)) {
    ::kill(child, SIGKILL);  // The child is not reaped, so the pid is still its own.
    return false;
  }
  return info.si_code == CLD_EXITED && info.si_status == 0;
}

/// An answer, in memory that the child shares with its parent.
struct SharedAnswer {
  bool is_complete;
  std::size_t size;
  std::array<char, 4 << 20> text;  // A longer answer is cut. The kernel adds pages when used.
};

}  // namespace

bool run_in_bounded_child(const std::function<void()>& work, std::chrono::milliseconds limit) {
  return fork_and_wait(work, limit).value_or(false);
}

std::optional<std::string> answer_in_time(const std::function<std::string()>& ask,
                                          std::chrono::milliseconds limit) {
  void* const memory = ::mmap(nullptr, sizeof(SharedAnswer), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return ask();
  auto* const shared = static_cast<SharedAnswer*>(memory);  // The kernel has filled it with zeros.
  const std::optional<bool> in_time = fork_and_wait(
      [&] {
        const std::string answer = ask();
        shared->size = answer.copy(shared->text.data(), shared->text.size());
        shared->is_complete = true;
      },
      limit);
  std::optional<std::string> answer;
  if (!in_time)
    answer = ask();
  else if (*in_time && shared->is_complete)
    answer.emplace(shared->text.data(), shared->size);
  ::munmap(memory, sizeof(SharedAnswer));
  return answer;
}

void print_to_stderr(const std::string& text) {
  run_in_bounded_child(
      [&text] { [[maybe_unused]] const auto error = write_all(STDERR_FILENO, text); }, kPrintLimit);
}

}  // namespace muster
