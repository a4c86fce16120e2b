// What a user can do about a limit of the system that stopped us.

#pragma once

#include <string>

namespace muster {

/// For an errno that means that a limit is reached: "; …: raise it with `ulimit -n`", to be put
/// behind the error's own text. Else empty.
std::string limit_advice(int error);

/// The same for the start of a process or thread, where EAGAIN means a limit, too.
std::string start_limit_advice(int error);

}  // namespace muster
