// The properties of the process that musterd gets from the process that started it: standard
// streams, signals, listening sockets and the limit of descriptors.
#pragma once

#include <optional>
#include <vector>

namespace muster {

/// To be called first. Opens missing standard streams as /dev/null. A reader of stderr that ends
/// and a limit of a file's size (SIGPIPE, SIGXFSZ) become errors of write() and do not end musterd.
void prepare_process();

/// The listening descriptors that a service manager has passed to musterd by the protocol of
/// systemd's sd_listen_fds(3). They begin at 3, and are for this process if LISTEN_PID names it.
/// Returns std::nullopt if LISTEN_FDS is invalid.
std::optional<std::vector<int>> inherited_descriptors();

/// Raises the limit of open descriptors to the hard limit, because each connection needs one.
void raise_descriptor_limit();

}  // namespace muster
