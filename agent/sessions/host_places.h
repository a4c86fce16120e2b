// The places where a host may be, and what answers there.
#pragma once

#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "agent/core/agent_options.h"
#include "rendezvous/node/host_question.h"

namespace muster {

struct HostPlace {
  RendezvousEndpoint endpoint;  // As given.
  std::string address;          // Numeric.
  std::string text() const;     // "address:port"
};
/// All addresses of all endpoints, without duplicates; kMaxPlaces at most. Names that have been
/// looked up before are not waited for. `endpoints` must outlive the call.
boost::asio::awaitable<std::vector<HostPlace>> host_places(
    const std::vector<RendezvousEndpoint>& endpoints);

/// What the other places say.
struct OtherHosts {
  std::string conflict;  // Hosts that do not share their state: a sentence. Empty: none was found.
  std::string unasked;   // The places that have not answered, for people.
};
/// Asks all `endpoints` at once, for a short time, whether a host there has another state than
/// `found`. `options` are those of a client of the host.
boost::asio::awaitable<OtherHosts> ask_other_hosts(boost::asio::any_io_executor executor,
                                                   NativeClientOptions options,
                                                   std::vector<RendezvousEndpoint> endpoints,
                                                   MetHost found);

}  // namespace muster
