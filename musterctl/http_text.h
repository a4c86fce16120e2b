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
/// The limit for a whole answer.
inline constexpr std::size_t kMaxAnswerBytes = std::size_t{64} << 20;

/// Encodes bytes for the path of a request.
std::string percent_encoded(std::string_view text);

/// The number of bytes to receive, known once `bytes` has its whole head; 0: not known yet. If the
/// head does not give the length, only the head: parse_answer() then says that musterd is not
/// there. More than kMaxAnswerBytes: the answer is too large.
std::size_t answer_bytes(std::string_view bytes);
/// Parses a whole answer. The error is a sentence.
boost::system::result<HttpAnswer, ClientError> parse_answer(std::string_view bytes);

}  // namespace muster::ctl
