// The real machine behind a launch plan.
#pragma once

#include <string>

#include "launcher/launch_plan.h"

namespace muster {

/// The process's environment, as it is now. Of a variable given twice the first counts, as getenv
/// has it.
Environment read_environment();

/// Asks this machine. `environment` must live as long as the result.
NodeFacts node_facts(const Environment& environment, const std::string& argv0);

/// A random UUID, version 4, in its usual form.
std::string random_uuid();

/// How wide the help may be: COLUMNS, else the terminal's width, else 80.
int terminal_width(const Environment& environment);

}  // namespace muster
