// Advice for the user if a limit of the system is reached.

#pragma once

#include <string>

namespace muster {

/// For an errno that means that a limit is reached: "; …: raise it with `ulimit -n`", to be
/// appended to the text of the error. Otherwise empty.
std::string limit_advice(int error);

/// limit_advice() for the start of a process or thread, where EAGAIN means a limit, too.
std::string start_limit_advice(int error);

}  // namespace muster
