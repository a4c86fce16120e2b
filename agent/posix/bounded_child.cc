#include "agent/posix/bounded_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "agent/core/watched_time.h"
#include "agent/posix/clocks.h"
#include "agent/posix/write_all.h"
#include "rendezvous/net/owned_fd.h"

namespace muster {

using namespace std::chrono_literals;

namespace {

constexpr std::chrono::milliseconds kPrintLimit = 2s;

bool has_ended(pid_t child, siginfo_t& info) {
  info = {};
  return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG) == 0 &&
         info.si_pid == child;
}

}  // namespace

bool run_in_bounded_child(const std::function<void()>& work, std::chrono::milliseconds limit) {
  const pid_t child = ::fork();
  if (child < 0) return false;
  if (child == 0) {
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
    WatchedWait wait(monotonic_now());
    while (wait.advance(monotonic_now()) < limit &&
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

std::optional<std::string> answer_in_time(const std::function<std::string()>& ask,
                                          std::chrono::milliseconds limit) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return ask();
  const OwnedFd reader(ends[0]);
  OwnedFd writer(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return ask();
  if (child == 0) {
    try {
      const std::string answer = ask();
      write_all(writer.get(), {answer.c_str(), answer.size() + 1});  // A NUL shows the end.
    } catch (...) {
      ::_exit(1);  // Without the NUL, the caller knows that there is no answer.
    }
    ::_exit(0);
  }
  writer.reset();
  std::string answer;
  pollfd readable{reader.get(), POLLIN, 0};
  for (WatchedWait wait(monotonic_now()); wait.advance(monotonic_now()) < limit;) {
    if (::poll(&readable, 1, static_cast<int>(wait.until_next_check(limit) / 1ms) + 1) <= 0)
      continue;
    std::array<char, 4096> part;
    const ssize_t n = ::read(reader.get(), part.data(), part.size());
    if (n > 0) answer.append(part.data(), static_cast<std::size_t>(n));
    if (n > 0 || (n < 0 && errno == EINTR)) continue;
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED);  // It has closed its end: it exits.
    if (answer.empty() || answer.back() != '\0') return std::nullopt;
    answer.pop_back();
    return answer;
  }
  ::kill(child, SIGKILL);
  return std::nullopt;
}

void print_to_stderr(const std::string& text) {
  run_in_bounded_child(
      [&text] { [[maybe_unused]] const auto error = write_all(STDERR_FILENO, text); }, kPrintLimit);
}

}  // namespace muster
