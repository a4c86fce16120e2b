// What a client of musterd's HTTP shows instead of the token: a key for reading, and a proof for
// each request that changes something. Pure. Both ends of HTTP use it: musterd and musterctl.
//
// docs/security.md says why there are two.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/wire/token_proof.h"

namespace muster {

/// The key for reading, 64 hexadecimal digits: `Authorization: Bearer KEY`. The token cannot be
/// found out from it, and it changes nothing.
std::string http_read_key(const TokenCrypto& crypto);

/// A request that changes something, as the proof covers it.
struct HttpChange {
  std::string_view method;
  std::string_view target;
  std::string_view nonce;  // From musterd's answer 401, for one request of one connection.
};
/// The proof that the client has the token, 64 hexadecimal digits:
/// `Authorization: Muster proof="PROOF"`.
std::string http_change_proof(const TokenCrypto& crypto, const HttpChange& change);

/// `Muster nonce="NONCE"`, in WWW-Authenticate: musterd asks for a proof.
std::string http_challenge(std::string_view nonce);
/// The nonce of such a field; empty if it has none.
std::string_view http_challenge_nonce(std::string_view field);

}  // namespace muster
