#include "agent/core/signal_name.h"

#include <csignal>

namespace muster {
namespace {

struct NamedSignal {
  int number;
  const char* name;
};

// Every name that Python 3.11's signal module has on Linux. If two names share a number, the name
// that Python's signal.Signals uses comes first.
// 34 and 64 are the C library's first and last real-time signals, whose macros are function calls.
constexpr NamedSignal kSignals[] = {
    {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},       {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},
    {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"},     {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
    {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"},     {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"},
    {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"},     {SIGTERM, "SIGTERM"}, {SIGSTKFLT, "SIGSTKFLT"},
    {SIGCHLD, "SIGCHLD"}, {SIGCONT, "SIGCONT"},     {SIGSTOP, "SIGSTOP"}, {SIGTSTP, "SIGTSTP"},
    {SIGTTIN, "SIGTTIN"}, {SIGTTOU, "SIGTTOU"},     {SIGURG, "SIGURG"},   {SIGXCPU, "SIGXCPU"},
    {SIGXFSZ, "SIGXFSZ"}, {SIGVTALRM, "SIGVTALRM"}, {SIGPROF, "SIGPROF"}, {SIGWINCH, "SIGWINCH"},
    {SIGIO, "SIGIO"},     {SIGPWR, "SIGPWR"},       {SIGSYS, "SIGSYS"},   {SIGIOT, "SIGIOT"},
    {SIGCLD, "SIGCLD"},   {SIGPOLL, "SIGPOLL"},     {34, "SIGRTMIN"},     {64, "SIGRTMAX"}};

}  // namespace

std::string signal_name(int number) {
  for (const NamedSignal& signal : kSignals)
    if (signal.number == number) return signal.name;
  return "";
}

std::optional<int> signal_number(std::string_view name) {
  for (const NamedSignal& signal : kSignals)
    if (signal.name == name) return signal.number;
  return std::nullopt;
}

}  // namespace muster
