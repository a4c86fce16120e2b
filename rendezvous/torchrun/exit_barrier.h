// The keys of torchrun's exit barrier, at which the agents of a round wait for each other when
// their workers have succeeded.
#pragma once

#include <string_view>

namespace muster {

/// The end of the key that counts the agents that have come to the barrier.
inline constexpr std::string_view kExitBarrierCountKey =
    "/torchelastic/agent/terminal_state/num_members";
/// The end of the key that the last agent sets. The others wait for it.
inline constexpr std::string_view kExitBarrierKey =
    "/torchelastic/agent/terminal_state/last_member";

}  // namespace muster
