// Sends the first message of a native connection, with the handshake of the token if there is one.
#pragma once

#include <string>

#include <boost/asio/awaitable.hpp>
#include <boost/system/error_code.hpp>

#include "rendezvous/access/token_proof.h"
#include "rendezvous/client/store_exchange.h"

namespace muster {

struct TokenAnswer {
  boost::system::error_code error = {};  // The connection has failed. Then nothing else is set.
  std::string json = {};                 // The answer to the first message, or a refusal.
  /// This node's side of the handshake. Null without a token. The caller uses it to check the proof
  /// in the answer.
  std::shared_ptr<TokenClaim> claim = {};
};

/// Sends a hello or a reach, and proves the token if the host sends a challenge. `crypto` is null
/// without a token. `crypto` and `exchange` must outlive the call.
boost::asio::awaitable<TokenAnswer> ask_with_token(StoreExchange& exchange,
                                                   const TokenCrypto* crypto, NativeRequest first);

}  // namespace muster
