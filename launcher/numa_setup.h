// --numa-binding on a launch plan: asks for the machine, and fills in each worker's CPUs.
#pragma once

#include "launcher/launch_plan.h"

namespace muster {

/// Does nothing without the option. The number of workers must be known.
Checked<void> plan_numa(const Flags& flags, const Environment& environment, const NodeFacts& facts,
                        LaunchPlan& plan);

}  // namespace muster
