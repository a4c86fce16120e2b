// Endpoints as text, and the answers of musterd's HTTP. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <boost/system/result.hpp>

#include "rendezvous/tls/tls_pump.h"

namespace muster::ctl {

struct Endpoint {
  std::string host;
  std::uint16_t port = 0;
  SharedTls tls = {};        // Null: plain HTTP.
  std::string text() const;  // host:port, with an IPv6 address in brackets.
};
struct ClientError {
  std::string reason;  // A sentence that says what to do.
};

/// Parses "host:9400", "[::1]:9400", "http://host:9400/" or "https://host:9400/". The result has no
/// `tls`.
boost::system::result<Endpoint, ClientError> parse_endpoint(std::string_view text);

struct HttpAnswer {
  unsigned status = 0;
  std::string body;
  std::string nonce = {};      // With status 401: a proof of the token must cover it. Empty: none.
  bool token_refused = false;  // With status 401: the request had a key or a proof of the token.
};

/// The limit for the head of an answer.
inline constexpr std::size_t kMaxHeadBytes = std::size_t{64} << 10;
/// The limit for the body of an answer.
inline constexpr std::size_t kMaxAnswerBytes = std::size_t{64} << 20;

/// Encodes bytes for the path of a request.
std::string percent_encoded(std::string_view text);

/// The nonce in `challenge`, a field WWW-Authenticate of musterd; empty: it is another challenge.
std::string nonce_of(std::string_view challenge);

}  // namespace muster::ctl
