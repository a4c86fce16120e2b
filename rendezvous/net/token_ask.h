// The first message of a native connection, with the token's handshake in it where there is one.
#pragma once

#include <string>

#include <boost/asio/awaitable.hpp>
#include <boost/system/error_code.hpp>

#include "rendezvous/net/store_exchange.h"
#include "rendezvous/wire/token_proof.h"

namespace muster {

/// What came of it.
struct TokenAnswer {
  boost::system::error_code error = {};  // Of the connection: then nothing else is set.
  std::string json = {};                 // The answer to `first`, or a refusal.
  /// This node's side of the handshake; null without a token. The caller asks it about the proof in
  /// the answer.
  std::shared_ptr<TokenClaim> claim = {};
};

/// Sends a hello or a reach, and answers a host that asks for the token. `crypto`: null without a
/// token; it and `exchange` outlive the call.
boost::asio::awaitable<TokenAnswer> ask_with_token(StoreExchange& exchange,
                                                   const TokenCrypto* crypto, NativeRequest first);

}  // namespace muster
