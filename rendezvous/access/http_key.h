// The keys that a client of musterd's HTTP interface sends instead of the token: one key for
// reading, or a proof of the token for one request. Pure. Both ends use it: musterd and musterctl.
//
// docs/security.md says why there are two.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/access/token_proof.h"

namespace muster {

/// The key for reading, 64 hexadecimal digits: `Authorization: Bearer KEY`. It does not reveal the
/// token, and it allows no changes.
std::string http_read_key(const TokenCrypto& crypto);

/// The parts of a request that the proof covers.
struct ProvenRequest {
  std::string_view method;
  std::string_view target;
  std::string_view nonce;  // From musterd's 401 answer; valid for one request of one connection.
};
/// The proof that the client has the token, 64 hexadecimal digits:
/// `Authorization: Muster proof="PROOF"`.
std::string http_request_proof(const TokenCrypto& crypto, const ProvenRequest& change);

/// `Muster nonce="NONCE"`: the WWW-Authenticate field with which musterd asks for a proof.
std::string http_challenge(std::string_view nonce);
/// The nonce in such a field; empty if there is none.
std::string_view http_challenge_nonce(std::string_view field);

}  // namespace muster
