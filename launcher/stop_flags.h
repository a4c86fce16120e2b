// The options about signals and about the time that processes have to end.
#pragma once

#include "launcher/flag_error.h"
#include "launcher/flags.h"
#include "launcher/launch_plan.h"

namespace muster {

/// Fills in when the job is stopped, and how long its processes have to end.
Checked<void> plan_stop(const Flags& flags, const Environment& environment, LaunchPlan& plan);

}  // namespace muster
