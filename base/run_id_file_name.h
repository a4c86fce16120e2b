// The file through which programs of the same machine learn the run id of an agent.
#pragma once

namespace muster {

/// The name of a file in memory; the agent keeps its descriptor open.
inline constexpr const char* kRunIdFileName = "muster-run-id";

}  // namespace muster
