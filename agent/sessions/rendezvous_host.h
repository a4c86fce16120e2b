// Does the rendezvous' endpoint mean this machine? Asks the resolver and the kernel.
#pragma once

#include <memory>
#include <string>

#include <boost/asio/awaitable.hpp>

#include "agent/core/host_match.h"
#include "rendezvous/core/time.h"

namespace muster {

struct HostAnswer {
  HostMatch match = HostMatch::Elsewhere;
  HostFacts facts;  // On which it rests: also where the endpoint is, if that is a name.
  std::string endpoint_trouble;  // Why its name could not be looked up; empty: it could.
};

/// Asked before each try to connect. Off the loop; no name is looked up that decides nothing.
class HostFinder {
 public:
  explicit HostFinder(std::string endpoint_host);

  /// The endpoint's name is looked up anew, for `limit` at most. This machine's own name may take
  /// `own_limit`: if nobody has answered by then it counts as unknown, and is not asked for again
  /// before there is an answer, which a later call knows.
  boost::asio::awaitable<HostAnswer> find(Duration limit, Duration own_limit);

 private:
  struct OwnName;
  static boost::asio::awaitable<void> ask(std::shared_ptr<OwnName> own);

  std::string endpoint_host_;
  std::shared_ptr<OwnName> own_;
};

}  // namespace muster
