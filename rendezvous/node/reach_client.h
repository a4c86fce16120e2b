// The question of a node to the workers' store of rank 0: do the nodes of the round reach each
// other?
#pragma once

#include <optional>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "base/time.h"
#include "rendezvous/access/token_proof.h"
#include "rendezvous/messages/native_codec.h"
#include "rendezvous/rounds/rendezvous_events.h"

namespace muster {

/// Returns rank 0's answer, if it comes within `limit`. Returns std::nullopt if there is no answer,
/// if the store does not know the question, if the answer is of another kind, or if a `token` is
/// given (null: none) and the answer does not prove that rank 0 has it, too.
boost::asio::awaitable<std::optional<NativeReached>> ask_reach(
    boost::asio::any_io_executor executor, StoreAddress store, NativeReach question, Duration limit,
    SharedTokenCrypto token);

}  // namespace muster
