// Plays a kernel that lacks a call that muster needs. Tests preload this library. OLD_KERNEL names
// the missing call: pidfd_open (before Linux 5.3), waitid for pidfds (before 5.4), or clone, whose
// flag CLONE_PIDFD older kernels and emulators ignore without an error.
#include <dlfcn.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>

namespace {

bool lacks(const char* call) {
  const char* named = std::getenv("OLD_KERNEL");
  return named != nullptr && std::strcmp(named, call) == 0;
}

// `function` only gives the type of the function called `name`.
template <typename Function>
Function* next(Function* /*function*/, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

long syscall(long number, ...) noexcept {
  va_list more;
  va_start(more, number);
  long words[6];
  for (long& word : words)
    word = va_arg(more, long);
  va_end(more);
  if (number == SYS_pidfd_open && lacks("pidfd_open")) return errno = ENOSYS, -1;
  if (number == SYS_clone && lacks("clone")) words[0] &= ~static_cast<long>(CLONE_PIDFD);
  return next(&::syscall, "syscall")(number, words[0], words[1], words[2], words[3], words[4],
                                     words[5]);
}

int clone(int (*function)(void*), void* stack, int flags, void* argument, ...) noexcept {
  va_list more;
  va_start(more, argument);
  void* words[3];
  for (void*& word : words)
    word = va_arg(more, void*);
  va_end(more);
  if (lacks("clone")) flags &= ~CLONE_PIDFD;
  return next(&::clone, "clone")(function, stack, flags, argument, words[0], words[1], words[2]);
}

int waitid(idtype_t type, id_t id, siginfo_t* info, int options) {
  if (type == P_PIDFD && lacks("waitid")) return errno = EINVAL, -1;
  return next(&::waitid, "waitid")(type, id, info, options);
}

}  // extern "C"
