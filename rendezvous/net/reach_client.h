// One node's question to the workers' store of rank 0: do the nodes of our round reach each other?
#pragma once

#include <optional>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "rendezvous/core/rendezvous_events.h"
#include "rendezvous/core/time.h"
#include "rendezvous/wire/native_codec.h"
#include "rendezvous/wire/token_proof.h"

namespace muster {

/// What rank 0 answers within `limit`. Nothing in any other case:
/// nobody answers, a store that does not know the question, an answer of another kind, or with a
/// `token` (null: none) one that does not prove that rank 0 has it, too.
boost::asio::awaitable<std::optional<NativeReached>> ask_reach(
    boost::asio::any_io_executor executor, StoreAddress store, NativeReach question, Duration limit,
    SharedTokenCrypto token);

}  // namespace muster
