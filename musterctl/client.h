// Sends one HTTP request to musterd and waits for the answer, with a time limit.
#pragma once

#include <string>
#include <vector>

#include <boost/system/result.hpp>

#include "musterctl/http_text.h"
#include "rendezvous/access/token_proof.h"

namespace muster::ctl {

/// The time limit for an answer, including the time to connect. The time to look up the host's name
/// counts, too, but a look-up that takes longer goes on: the resolver has limits of its own, which
/// resolv.conf sets (by default 10 s for each server that does not answer).
inline constexpr int kAnswerSeconds = 10;

/// A musterd, and the token for requests to it.
struct Service {
  Endpoint endpoint;
  SharedTokenCrypto token;  // Null: no token.
};

/// Returns the answer with any HTTP status; an error means that there is no answer. If musterd asks
/// for its token, the request goes out again with a proof, which is good for this one request:
/// whoever has taken musterd's port can do nothing with it later. `token`: null: no token.
boost::system::result<HttpAnswer, ClientError> get(const Endpoint& endpoint,
                                                   const std::string& target,
                                                   const TokenCrypto* token);

/// The same for a POST, which changes something.
boost::system::result<HttpAnswer, ClientError> post(const Endpoint& endpoint,
                                                    const std::string& target,
                                                    const TokenCrypto* token,
                                                    int within_seconds = kAnswerSeconds);

/// The result of connecting to an endpoint. `error` is empty if that succeeded.
struct Reach {
  std::vector<std::string> addresses = {};
  std::string error = {};
  double connect_ms = 0;
};
Reach reach(const Endpoint& endpoint);

}  // namespace muster::ctl
