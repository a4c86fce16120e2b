// Checks whether the rendezvous endpoint is this machine, with the resolver and the kernel.
#pragma once

#include <memory>
#include <string>

#include <boost/asio/awaitable.hpp>

#include "agent/core/host_match.h"
#include "base/time.h"

namespace muster {

struct EndpointCheck {
  HostMatch match = HostMatch::Elsewhere;
  HostFacts facts;           // What `match` is based on, with the endpoint's addresses.
  std::string lookup_error;  // Why the endpoint's name could not be looked up. Empty: no error.
};

/// Used before each try to connect. Names are looked up on another thread, and only if the result
/// can change the answer.
class EndpointChecker {
 public:
  explicit EndpointChecker(std::string endpoint_host);

  /// Looks up the endpoint's name again, for `limit` at most. Waits for this machine's own name for
  /// `own_name_limit` at most. If that look-up takes longer, the name counts as unknown. The
  /// look-up goes on, no second one is started meanwhile, and a later call uses its result.
  boost::asio::awaitable<EndpointCheck> check(Duration limit, Duration own_name_limit);

 private:
  struct OwnName;
  static boost::asio::awaitable<void> look_up_own_name(std::shared_ptr<OwnName> own);

  std::string endpoint_host_;
  std::shared_ptr<OwnName> own_;
};

}  // namespace muster
