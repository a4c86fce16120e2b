// What muster got from whoever started it, and what it passes on of that to its workers.

#pragma once

#include <signal.h>
#include <sys/resource.h>

#include "agent/posix/spawn.h"

namespace muster {

/// Whether this signal is ignored by the calling process.
bool is_ignored(int number);

/// Descriptors 0 to 2 must exist: another file's would be taken for a worker's standard stream.
void open_missing_standard_streams();

/// The signals that workers start with, as workers of torchrun have them: what is blocked or
/// ignored now stays so, but for `handled` ones and those that a Python process resets before it
/// starts another. Also SIGCHLD: a program that ignores it cannot learn how its children end.
SignalState signals_for_workers(const sigset_t& handled);

/// Raises the calling process' limit of open files to the hard one, and returns what it was: the
/// workers keep that.
rlimit raise_descriptor_limit();

}  // namespace muster
