// Asking the agent to host the workers' store, as a coroutine.
#pragma once

#include <functional>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "agent/sessions/rendezvous_session.h"
#include "rendezvous/core/result.h"

namespace muster {

using HostStore = std::function<void(std::function<void(const HostedStoreResult&)> done)>;

/// What `host` gives, or an error if it gives nothing within `limit`. Its `done` may be called on
/// any thread, also too late.
boost::asio::awaitable<Result<HostedStore>> hosted_store(boost::asio::any_io_executor executor,
                                                         HostStore host, Duration limit);

}  // namespace muster
