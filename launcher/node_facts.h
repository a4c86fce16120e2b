// Queries the real machine for a launch plan.
#pragma once

#include <string>

#include "launcher/launch_plan.h"

namespace muster {

/// The current environment of the process. If it has a variable twice, the first one counts, as for
/// getenv.
Environment read_environment();

/// The queries of this machine. `environment` must live as long as the result.
NodeFacts node_facts(const Environment& environment, const std::string& argv0);

/// A random UUID, version 4, in its usual form.
std::string random_uuid();

/// The width of the help: COLUMNS, or the terminal's width, or 80.
int terminal_width(const Environment& environment);

}  // namespace muster
