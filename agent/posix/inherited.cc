#include "agent/posix/inherited.h"

#include <fcntl.h>
#include <unistd.h>

namespace muster {

bool is_ignored(int number) {
  struct sigaction action {};
  ::sigaction(number, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

void open_missing_standard_streams() {
  for (int fd = 0; fd < 3; ++fd)
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
}

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

rlimit raise_descriptor_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  rlimit raised = limit;
  raised.rlim_cur = raised.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &raised);
  return limit;
}

}  // namespace muster
