// Delays calls at random, as on a busy machine. Tests preload this library into all programs that
// they start; docs/testing.md says how.
//
// A call sleeps before and after its work, each time with a chance of LATE_CALLS in 100,000, for up
// to LATE_CALLS_US microseconds (20,000 if it is not set). Without LATE_CALLS no call sleeps. With
// LATE_CALLS_IN=muster-shim only calls of threads with this name sleep, with
// LATE_CALLS_AFTER=epoll_wait only calls of this function, and only after their work.
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

namespace {

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

// Does not use <random>: the functions below may be called before C++ objects are initialized.
std::uint64_t next_random() {
  thread_local std::uint64_t state = 0;
  if (state == 0) {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    state = (static_cast<std::uint64_t>(::getpid()) << 32U) ^
            static_cast<std::uint64_t>(now.tv_nsec) ^ reinterpret_cast<std::uintptr_t>(&state);
  }
  state ^= state << 13U;
  state ^= state >> 7U;
  state ^= state << 17U;
  return state;
}

// Not initialized at the first use: a signal handler may make a call during the initialization.
std::uint64_t chance = 0;
std::uint64_t longest_us = 0;
const char* only_in = nullptr;
const char* only_after = nullptr;

[[gnu::constructor]] void read_settings() {
  longest_us = setting("LATE_CALLS_US", 20'000);
  only_in = std::getenv("LATE_CALLS_IN");
  only_after = std::getenv("LATE_CALLS_AFTER");
  chance = setting("LATE_CALLS", 0);
}

/// Whether the calls of this thread may sleep.
bool is_chosen() {
  if (only_in == nullptr) return true;
  char own[16] = {};  // The kernel's limit.
  return ::prctl(PR_GET_NAME, own) == 0 && std::strcmp(own, only_in) == 0;
}

void perhaps_sleep() {
  const std::uint64_t random = next_random();
  if (random % 100'000 >= chance || longest_us == 0 || !is_chosen()) return;
  const int error = errno;
  const std::uint64_t us = (random >> 20U) % longest_us;
  timespec rest{static_cast<time_t>(us / 1'000'000), static_cast<long>(us % 1'000'000) * 1000};
  while (::nanosleep(&rest, &rest) != 0 && errno == EINTR) {
  }
  errno = error;
}

// `function` only gives the type of the function called `name`.
template <typename Function, typename... Arguments>
auto late(Function* /*function*/, const char* name, Arguments... arguments) {
  auto* const real = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
  const bool before = only_after == nullptr;
  const bool after = before || std::strcmp(only_after, name) == 0;
  if (before) perhaps_sleep();
  if constexpr (std::is_void_v<std::invoke_result_t<Function, Arguments...>>) {
    real(arguments...);
    if (after) perhaps_sleep();
  } else {
    const auto result = real(arguments...);
    if (after) perhaps_sleep();
    return result;
  }
}

}  // namespace

extern "C" {

int epoll_wait(int set, epoll_event* events, int most, int ms) {
  return late(&epoll_wait, "epoll_wait", set, events, most, ms);
}
int poll(pollfd* files, nfds_t count, int ms) {
  return late(&poll, "poll", files, count, ms);
}
ssize_t read(int fd, void* to, size_t size) {
  return late(&read, "read", fd, to, size);
}
ssize_t write(int fd, const void* from, size_t size) {
  return late(&write, "write", fd, from, size);
}
ssize_t writev(int fd, const iovec* parts, int count) {
  return late(&writev, "writev", fd, parts, count);
}
ssize_t send(int fd, const void* from, size_t size, int flags) {
  return late(&send, "send", fd, from, size, flags);
}
ssize_t recv(int fd, void* to, size_t size, int flags) {
  return late(&recv, "recv", fd, to, size, flags);
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return late(&sendmsg, "sendmsg", fd, message, flags);
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
  return late(&recvmsg, "recvmsg", fd, message, flags);
}
int connect(int fd, const sockaddr* to, socklen_t size) {
  return late(&connect, "connect", fd, to, size);
}
int listen(int fd, int backlog) noexcept {
  return late(&listen, "listen", fd, backlog);
}
int accept(int fd, sockaddr* from, socklen_t* size) {
  return late(&accept, "accept", fd, from, size);
}
int accept4(int fd, sockaddr* from, socklen_t* size, int flags) {
  return late(&accept4, "accept4", fd, from, size, flags);
}
int close(int fd) {
  return late(&close, "close", fd);
}
int waitid(idtype_t kind, id_t id, siginfo_t* info, int options) {
  return late(&waitid, "waitid", kind, id, info, options);
}
pid_t waitpid(pid_t pid, int* status, int options) {
  return late(&waitpid, "waitpid", pid, status, options);
}
pid_t wait4(pid_t pid, int* status, int options, rusage* usage) noexcept {
  return late(&wait4, "wait4", pid, status, options, usage);
}
int kill(pid_t pid, int signal) noexcept {
  return late(&kill, "kill", pid, signal);
}
int rename(const char* from, const char* to) noexcept {
  return late(&rename, "rename", from, to);
}
int unlink(const char* path) noexcept {
  return late(&unlink, "unlink", path);
}

// The functions of std::condition_variable: the notifying thread goes on later than the waiting
// one.
void notify_one(void* variable) __asm__("_ZNSt18condition_variable10notify_oneEv");
void notify_one(void* variable) {
  late(&notify_one, "_ZNSt18condition_variable10notify_oneEv", variable);
}
void notify_all(void* variable) __asm__("_ZNSt18condition_variable10notify_allEv");
void notify_all(void* variable) {
  late(&notify_all, "_ZNSt18condition_variable10notify_allEv", variable);
}

}  // extern "C"
