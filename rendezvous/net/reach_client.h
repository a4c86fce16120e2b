// The question of a node to the workers' store of rank 0: do the nodes of the round reach each
// other?
#pragma once

#include <optional>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "rendezvous/core/rendezvous_events.h"
#include "rendezvous/core/time.h"
#include "rendezvous/wire/native_codec.h"
#include "rendezvous/wire/token_proof.h"

namespace muster {

/// Returns rank 0's answer, if it comes within `limit`. Returns std::nullopt if there is no answer,
/// if the store does not know the question, if the answer is of another kind, or if a `token` is
/// given (null: none) and the answer does not prove that rank 0 has it, too.
boost::asio::awaitable<std::optional<NativeReached>> ask_reach(
    boost::asio::any_io_executor executor, StoreAddress store, NativeReach question, Duration limit,
    SharedTokenCrypto token);

}  // namespace muster
