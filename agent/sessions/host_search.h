// The host of a rendezvous that may be at one of several endpoints: musterds of which one leads.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "agent/core/agent_options.h"
#include "rendezvous/net/native_client.h"

namespace muster {

/// What a search has found: the endpoint where a muster is the host or, if there is none, the
/// endpoint whose answer says most.
struct HostAnswerer {
  Result<HostKind> kind = HostKind::Other;
  std::unique_ptr<NativeClient> client;
  std::size_t endpoint = 0;
  std::string why;  // Of an error: of each endpoint, which is named if there are several.
};

/// Connects to the endpoints in turn, beginning with number `first`, until a muster is the host.
/// Each has its share of `options.connect_timeout`; the error of all is that the connection is
/// refused only if every one of them refuses it. With one endpoint: connects to that one.
boost::asio::awaitable<HostAnswerer> find_host(boost::asio::any_io_executor executor,
                                               NativeClientOptions options,
                                               std::vector<RendezvousEndpoint> endpoints,
                                               std::size_t first);

}  // namespace muster
