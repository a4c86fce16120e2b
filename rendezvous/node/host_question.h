// Asks a host which state it has, as a node asks when it begins.
#pragma once

#include <optional>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "rendezvous/node/known_host.h"
#include "rendezvous/node/native_client.h"

namespace muster {

/// `client` is connected, and has got the host's welcome.
MetHost met_host(const NativeClient& client);

/// Connects, reads the host's welcome, and closes the connection. Empty: no muster answers there,
/// or it refuses this node.
boost::asio::awaitable<std::optional<MetHost>> ask_host(boost::asio::any_io_executor executor,
                                                        NativeClientOptions options);

}  // namespace muster
