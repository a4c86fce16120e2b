// Where an agent tells its run's id to the programs of its machine.
#pragma once

namespace muster {

/// The name of a file in memory, among the agent's descriptors.
inline constexpr const char* kRunIdFileName = "muster-run-id";

}  // namespace muster
