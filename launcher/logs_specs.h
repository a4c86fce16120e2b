// --logs-specs: the program that has the plug-in in it.
//
// Pure. logs_specs.py beside this file is the program; it is put into muster when that is built.
#pragma once

#include <string>

#include "agent/core/agent_options.h"
#include "launcher/flags.h"

namespace muster {

/// Whether a plug-in lays out the logs; "default" is the name of torch's own, which muster is as.
bool has_logs_plugin(const Flags& flags);

/// Fills in what belongs to the plug-in; `log` is planned otherwise. `python`: the workers'.
void plan_logs_specs(const Flags& flags, std::string python, LogOptions& log);

}  // namespace muster
