// Asks musterd over HTTP, once, and waits for the answer with a bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/system/result.hpp>

#include "rendezvous/tls/tls_pump.h"
#include "rendezvous/wire/token_proof.h"

namespace muster::ctl {

struct Endpoint {
  std::string host;
  std::uint16_t port = 0;
  SharedTls tls = {};        // Null: plain HTTP.
  std::string text() const;  // host:port, an IPv6 address in brackets.
};
struct ClientError {
  std::string reason;  // A sentence that says what to do.
};

/// "host:9400", "[::1]:9400", "http://host:9400/" or "https://host:9400/". Without its `tls`.
boost::system::result<Endpoint, ClientError> parse_endpoint(std::string_view text);

struct HttpAnswer {
  unsigned status = 0;
  std::string body;
  std::string nonce = {};  // With status 401: what a proof of the token must cover. Empty: none.
};

/// An answer is at most so long, and is there within so many seconds, connecting included.
inline constexpr std::size_t kMaxAnswerBytes = std::size_t{64} << 20;
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

/// Bytes as they may stand in a target's path.
std::string percent_encoded(std::string_view text);

/// How long a whole answer is, once its head is there; 0: that cannot be told yet. Pure.
std::size_t answer_bytes(std::string_view bytes);
/// Splits an answer as it came. Pure; the error is a sentence.
boost::system::result<HttpAnswer, ClientError> parse_answer(std::string_view bytes);

}  // namespace muster::ctl
