// Runs a job on several hosts: one ssh for each, whose output muster shows line by line with the
// host's name in front. HostsJob decides.
#pragma once

#include "launcher/hosts/hosts_plan.h"

namespace muster {

/// Returns the exit status, or dies of the signal that has ended the job. The calling process must
/// have one thread.
int run_on_hosts(const HostsPlan& plan);

}  // namespace muster
