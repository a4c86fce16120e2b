// The run's id in a file in memory: `musterctl ps` finds it among the agent's descriptors in /proc,
// also before a worker runs.
#pragma once

#include <string_view>

namespace muster {

/// The file's descriptor, which is to stay open as long as the agent lives. -1: there can be none,
/// and the job goes on without.
int publish_run_id(std::string_view run_id);

}  // namespace muster
