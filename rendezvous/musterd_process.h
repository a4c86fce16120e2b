// What musterd takes over from whoever started it.
#pragma once

#include <optional>
#include <vector>

namespace muster {

/// The descriptors that a service manager listens on for us, by the protocol of systemd's
/// sd_listen_fds(3): they begin at 3, and are ours if LISTEN_PID names this process.
/// Nothing if what they say makes no sense.
std::optional<std::vector<int>> inherited_descriptors();

/// A connection is a descriptor: as many as the hard limit allows.
void raise_descriptor_limit();

}  // namespace muster
