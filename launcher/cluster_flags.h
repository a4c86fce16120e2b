// Fills in from the scheduler what the user has not given (--cluster), and notices where a
// scheduler has started several musters that would each make a job of its own.
//
// Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/flag_error.h"
#include "launcher/flags.h"
#include "launcher/launch_plan.h"

namespace muster {

/// The flags with --cluster's values in place of defaults. `choices` gets one line for each value.
Checked<Flags> fill_from_cluster(const Flags& flags, const Environment& environment,
                                 const NodeFacts& facts, std::vector<std::string>& choices);

/// Warnings about variables of schedulers that say more than the flags. `flags`: as given.
std::vector<std::string> cluster_warnings(const Flags& flags, const Environment& environment,
                                          const NodeFacts& facts, const AgentOptions& plan);

}  // namespace muster
