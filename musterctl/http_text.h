// What musterctl reads and writes as text: where it asks, and what musterd's HTTP answers. Pure.
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

/// An answer is at most so long.
inline constexpr std::size_t kMaxAnswerBytes = std::size_t{64} << 20;

/// Bytes as they may stand in a target's path.
std::string percent_encoded(std::string_view text);

/// How long a whole answer is, once its head is there; 0: that cannot be told yet.
std::size_t answer_bytes(std::string_view bytes);
/// Splits an answer as it came; the error is a sentence.
boost::system::result<HttpAnswer, ClientError> parse_answer(std::string_view bytes);

}  // namespace muster::ctl
