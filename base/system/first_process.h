// Signals that end a program which is the first process of a container.
#pragma once

#include <signal.h>
#include <unistd.h>

namespace muster {

/// For the process with pid 1, the kernel drops a signal whose action is the default one. This
/// gives the signals that end programs an action that ends this one, with status 128 + number. Does
/// nothing in any other process.
///
/// To be called by a constructor of the program: what comes before it, the dynamic linker, takes a
/// fraction of a millisecond.
inline void end_by_signals_as_first_process() {
  if (::getpid() != 1) return;
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    struct sigaction action {};
    ::sigaction(number, nullptr, &action);
    if (action.sa_handler == SIG_DFL) ::signal(number, [](int which) { ::_exit(128 + which); });
  }
}

}  // namespace muster
