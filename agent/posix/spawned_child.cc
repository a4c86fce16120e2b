// This code writes no memory except its own stack: the child may share all other memory with its
// parent, which runs at the same time. So this code does not use errno. It calls no function of the
// C library that might write errno, take a lock or allocate.

#include "agent/posix/spawned_child.h"

#include <fcntl.h>
#include <sys/prctl.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "agent/posix/raw_call.h"

// Sanitizers would report the child's stack as memory of the parent.
#define MUSTER_IN_CHILD __attribute__((no_sanitize("address", "thread", "undefined")))

namespace muster {
namespace {

// The kernel's struct, which differs from `sigaction` of the C library. All zeros mean SIG_DFL
// without flags.
struct KernelAction {
  std::uintptr_t handler = 0;
  std::uintptr_t flags = 0;
  std::uintptr_t restorer = 0;
  std::uint64_t mask = 0;
};
constexpr std::size_t kKernelSetBytes = 8;
constexpr int kSignals = 64;
constexpr unsigned kNoLimit = ~0U;

/// The beginning of a sigset_t is the kernel's set: bit n - 1 stands for signal n.
MUSTER_IN_CHILD std::uint64_t kernel_set(const sigset_t& set) {
  std::uint64_t bits = 0;
  __builtin_memcpy(&bits, &set, sizeof bits);
  return bits;
}

template <typename T>
MUSTER_IN_CHILD long address(const T* pointer) {
  return static_cast<long>(reinterpret_cast<std::uintptr_t>(pointer));
}

/// The number that a file name consists of; -1: it is no number.
MUSTER_IN_CHILD long number_of(const char* name) {
  long number = 0;
  for (; *name != '\0'; ++name) {
    if (*name < '0' || *name > '9') return -1;
    number = number * 10 + (*name - '0');
  }
  return number;
}

/// Makes all descriptors above 2 close-on-exec. Without /proc it does nothing.
MUSTER_IN_CHILD void set_all_close_on_exec() {
  // The offsets in a struct linux_dirent64, see getdents64(2).
  constexpr long kLengthAt = 16;
  constexpr long kNameAt = 19;
  const long folder =
      raw_call(SYS_openat, AT_FDCWD, address("/proc/self/fd"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  char entries[4096];
  for (long bytes = 1; folder >= 0 && bytes > 0;) {
    bytes = raw_call(SYS_getdents64, folder, address(&entries[0]), sizeof entries);
    for (long at = 0; at < bytes;) {
      const long fd = number_of(&entries[at + kNameAt]);
      if (fd > 2) raw_call(SYS_fcntl, fd, F_SETFD, FD_CLOEXEC);
      std::uint16_t length = 0;
      __builtin_memcpy(&length, &entries[at + kLengthAt], sizeof length);
      at += length;
    }
  }
}

/// dup3() or, where a container refuses that, the older call of most architectures.
MUSTER_IN_CHILD long duplicate(int fd, int target) {
  const long result = raw_call(SYS_dup3, fd, target);
#ifdef SYS_dup2
  if (result == -EPERM || result == -ENOSYS) return raw_call(SYS_dup2, fd, target);
#endif
  return result;
}

MUSTER_IN_CHILD long redirect(const SpawnOptions& options, int status) {
  for (int target = 0; target < 3; ++target) {
    const int fd = options.fds.begin()[target];
    if (fd < 0) continue;
    if (const long result = duplicate(fd, target); result < 0) return result;
  }
  // All descriptors that muster opens are close-on-exec. Those that muster has inherited may not
  // be, so this closes them. Before Linux 5.9 close_range does not exist, and a container's seccomp
  // profile may refuse it with any error.
  const auto kept = static_cast<unsigned>(status);
  if (kept > 3) raw_call(SYS_close_range, 3, kept - 1);
  if (raw_call(SYS_close_range, kept + 1, kNoLimit) < 0) set_all_close_on_exec();
  return 0;
}

MUSTER_IN_CHILD long reset_signals(const SpawnOptions& options) {
  const std::uint64_t ignored = kernel_set(options.signals->ignored);
  const std::uint64_t to_set =
      options.not_default == nullptr ? ~0ULL : kernel_set(*options.not_default) | ignored;
  for (int number = 1; number <= kSignals; ++number) {
    const std::uint64_t bit = 1ULL << (number - 1);
    if ((to_set & bit) == 0) continue;
    KernelAction action;
    action.handler = (ignored & bit) != 0 ? reinterpret_cast<std::uintptr_t>(SIG_IGN) : 0;
    // Fails for SIGKILL and SIGSTOP, which need no reset.
    raw_call(SYS_rt_sigaction, number, address(&action), 0, kKernelSetBytes);
  }
  const std::uint64_t mask = kernel_set(options.signals->mask);
  return raw_call(SYS_rt_sigprocmask, SIG_SETMASK, address(&mask), 0, kKernelSetBytes);
}

/// Does all steps before execve. Returns 0, or minus the errno of `step`.
MUSTER_IN_CHILD long set_up(const ChildPlan& plan, SpawnStep& step) {
  const SpawnOptions& options = plan.options;
  long result = 0;
  step = SpawnStep::Session;
  if (result = raw_call(SYS_setsid); result < 0) return result;
  step = SpawnStep::ParentDeathSignal;
  if (result = raw_call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL); result < 0) return result;
  if (raw_call(SYS_getppid) != plan.parent) return -ESRCH;  // The parent died before the prctl.
  // Under Yama (ptrace_scope=1) only ancestors may trace a process. This call allows it also to the
  // parent's descendants, such as the agent and its py-spy. The permission survives execve, but a
  // fork does not inherit it (security/yama/yama_lsm.c of Linux 6). Without Yama the call fails.
  raw_call(SYS_prctl, PR_SET_PTRACER, plan.parent);
  step = SpawnStep::Affinity;
  // The worker's threads and children inherit the CPU mask.
  const std::span<const std::byte> cpus = options.cpu_mask;
  // With sanitizers, the iterators of a span would use a stack that the parent uses as well.
  if (!cpus.empty()) {
    result =
        raw_call(SYS_sched_setaffinity, 0, static_cast<long>(cpus.size()), address(cpus.data()));
    if (result < 0) return result;
  }
  step = SpawnStep::Redirect;
  if (result = redirect(options, plan.status); result < 0) return result;
  // Set after redirect(), as a descriptor may be above the new limit. The worker's limit is at most
  // the shim's, and lowering a limit is always allowed.
  if (options.file_limit != nullptr)
    raw_call(SYS_prlimit64, 0, RLIMIT_NOFILE, address(options.file_limit));
  step = SpawnStep::Signals;
  return reset_signals(options);
}

}  // namespace

MUSTER_IN_CHILD int run_child(void* argument) {
  const auto& plan = *static_cast<const ChildPlan*>(argument);
  SpawnResult failure;
  long result = set_up(plan, failure.step);
  if (result >= 0) {
    failure.step = SpawnStep::Exec;
    result = raw_call(SYS_execve, address(plan.options.path), address(plan.options.argv),
                      address(plan.options.env));
  }
  failure.error = static_cast<int>(-result);
  while (raw_call(SYS_write, plan.status, address(&failure), sizeof failure) == -EINTR) {
  }
  return 127;
}

}  // namespace muster
