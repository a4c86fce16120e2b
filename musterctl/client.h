// Asks musterd over HTTP, once, and waits for the answer with a bound.
#pragma once

#include <string>
#include <vector>

#include <boost/system/result.hpp>

#include "musterctl/http_text.h"
#include "rendezvous/wire/token_proof.h"

namespace muster::ctl {

/// An answer is there within so many seconds, connecting included.
inline constexpr int kAnswerSeconds = 10;

/// Where musterd is asked, and with what.
struct Service {
  Endpoint endpoint;
  SharedTokenCrypto token;  // Null: without one.
};

/// What only an operator may see needs a field that no page of another origin can send, and a proof
/// where there is a token.
enum class Asks { AsReader, AsOperator };

/// Any status is an answer; an error is that there is none. `token`: null without one.
boost::system::result<HttpAnswer, ClientError> get(const Endpoint& endpoint,
                                                   const std::string& target,
                                                   const TokenCrypto* token,
                                                   Asks as = Asks::AsReader);

/// The same for what changes something.
boost::system::result<HttpAnswer, ClientError> post(const Endpoint& endpoint,
                                                    const std::string& target,
                                                    const TokenCrypto* token,
                                                    int within_seconds = kAnswerSeconds);

/// How an endpoint is reached. `error` is empty if it was.
struct Reach {
  std::vector<std::string> addresses = {};
  std::string error = {};
  double connect_ms = 0;
};
Reach reach(const Endpoint& endpoint);

}  // namespace muster::ctl
