#include "agent/core/signal_name.h"

#include <array>
#include <csignal>

namespace muster {
namespace {

struct NamedSignal {
  int number;
  const char* name;
};

// Where two names share a number, the one that Python 3.11's signal.Signals gives.
constexpr std::array kSignals{
    NamedSignal{SIGHUP, "SIGHUP"},   NamedSignal{SIGINT, "SIGINT"},
    NamedSignal{SIGQUIT, "SIGQUIT"}, NamedSignal{SIGILL, "SIGILL"},
    NamedSignal{SIGTRAP, "SIGTRAP"}, NamedSignal{SIGABRT, "SIGABRT"},
    NamedSignal{SIGBUS, "SIGBUS"},   NamedSignal{SIGFPE, "SIGFPE"},
    NamedSignal{SIGKILL, "SIGKILL"}, NamedSignal{SIGUSR1, "SIGUSR1"},
    NamedSignal{SIGSEGV, "SIGSEGV"}, NamedSignal{SIGUSR2, "SIGUSR2"},
    NamedSignal{SIGPIPE, "SIGPIPE"}, NamedSignal{SIGALRM, "SIGALRM"},
    NamedSignal{SIGTERM, "SIGTERM"}, NamedSignal{SIGSTKFLT, "SIGSTKFLT"},
    NamedSignal{SIGCHLD, "SIGCHLD"}, NamedSignal{SIGCONT, "SIGCONT"},
    NamedSignal{SIGSTOP, "SIGSTOP"}, NamedSignal{SIGTSTP, "SIGTSTP"},
    NamedSignal{SIGTTIN, "SIGTTIN"}, NamedSignal{SIGTTOU, "SIGTTOU"},
    NamedSignal{SIGURG, "SIGURG"},   NamedSignal{SIGXCPU, "SIGXCPU"},
    NamedSignal{SIGXFSZ, "SIGXFSZ"}, NamedSignal{SIGVTALRM, "SIGVTALRM"},
    NamedSignal{SIGPROF, "SIGPROF"}, NamedSignal{SIGWINCH, "SIGWINCH"},
    NamedSignal{SIGIO, "SIGIO"},     NamedSignal{SIGPWR, "SIGPWR"},
    NamedSignal{SIGSYS, "SIGSYS"},
};

}  // namespace

std::string signal_name(int number) {
  if (number == SIGRTMIN) return "SIGRTMIN";
  if (number == SIGRTMAX) return "SIGRTMAX";
  for (const NamedSignal& signal : kSignals)
    if (signal.number == number) return signal.name;
  return "";
}

}  // namespace muster
