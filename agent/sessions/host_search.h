// Finds the host among several endpoints, such as musterds of which one leads.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "agent/core/agent_options.h"
#include "rendezvous/node/known_host.h"
#include "rendezvous/node/native_client.h"

namespace muster {

/// The result of a search: the endpoint where a muster is the host. If there is none, the endpoint
/// whose answer explains most.
struct FoundHost {
  Result<HostKind> kind = HostKind::Other;
  std::unique_ptr<NativeClient> client;
  std::size_t endpoint = 0;
  /// The connect errors of all endpoints, with the endpoints' names if there are several.
  std::string why;
  /// An endpoint has accepted the connection, and has not answered in time.
  bool was_silent = false;
};

/// Connects to the endpoints in turn, starting with index `first`, until one is a muster host,
/// those with known addresses first. Each endpoint gets its share of `options.connect_timeout`, and
/// none of the time of the look-ups, which have `options.lookup_timeout` together. The result is
/// "connection refused" only if every endpoint refuses the connection. A host that does not share
/// the state of the `known` one counts as one that cannot be reached.
boost::asio::awaitable<FoundHost> find_host(boost::asio::any_io_executor executor,
                                            NativeClientOptions options,
                                            std::vector<RendezvousEndpoint> endpoints,
                                            std::size_t first, KnownHost known = {});

}  // namespace muster
