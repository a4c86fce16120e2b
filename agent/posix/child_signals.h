// The signals that a process reads instead of handling them: they must be blocked. SIGCHLD says
// that a child has ended.
#pragma once

#include <signal.h>

#include <chrono>
#include <string>
#include <vector>

#include "agent/core/signal_events.h"

namespace muster {

/// The set of this signal alone.
sigset_t signal_set(int number);
/// A descriptor that is readable when a signal of the set is pending; -1 with errno.
int open_signals(const sigset_t& set);
/// Makes the calling thread the only one of its process that gets the signals of `set`, which it
/// has blocked. muster starts no thread that takes signals, but a library may (LD_PRELOAD): the
/// kernel then prefers that thread, where the default action would end muster or drop a SIGCHLD.
/// From now on such a thread passes the signal on. Only one thread of a process calls this.
void take_signals_of_all_threads(const sigset_t& set);
/// Undoes that in a child process: the default action for each signal of `set`.
void stop_taking_signals(const sigset_t& set);
/// Reads all signals that wait in `signal_fd`, and returns them without SIGCHLD.
std::vector<EndSignal> read_signals(int signal_fd);
/// Waits until a child ends, at most for `limit`.
void wait_for_child(std::chrono::milliseconds limit);
/// How a process has ended, from waitid(): "was killed by signal 9 (Killed)".
std::string describe_end(const siginfo_t& info);

}  // namespace muster
