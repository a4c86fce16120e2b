// Does the rendezvous' endpoint mean this machine? Asks the resolver and the kernel.
#pragma once

#include <string>

#include <boost/asio/awaitable.hpp>

#include "agent/core/host_match.h"
#include "rendezvous/core/time.h"

namespace muster {

struct HostAnswer {
  HostMatch match = HostMatch::Elsewhere;
  HostFacts facts;      // On which it rests, for the log.
  std::string trouble;  // What could not be found out; empty: nothing. Never fatal.
};

/// Off the loop, and over within about `limit`; names that take longer count as unknown.
boost::asio::awaitable<HostAnswer> find_host(std::string endpoint_host, Duration limit);

}  // namespace muster
