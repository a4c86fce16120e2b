#include "rendezvous/access/token_proof.h"

#include <utility>

#include "base/check.h"
#include "base/hex.h"

namespace muster {
namespace {

/// The proof of `role` ("node", "host"). The first message contains the node's nonce, the run id
/// and all other claims of the node; only the host's nonce is not in it. The texts of the two roles
/// differ, so that no side can send the other side's proof back as its own.
std::string proof_of(const TokenCrypto& crypto, std::string_view role, std::string_view host_nonce,
                     std::string_view first_json) {
  std::string text = "muster native door, protocol " + std::to_string(kNativeProtocolVersion);
  text.append("\n").append(role);
  text.append("\n").append(host_nonce);
  text.append("\n").append(first_json);
  return to_hex(crypto.mac(text));
}

/// The nonce and the run id of a first message.
struct FirstMessage {
  std::string nonce;  // Empty: the message has no nonce.
  std::string run;
};
FirstMessage about(const NativeRequest& request) {
  if (const auto* hello = std::get_if<NativeHello>(&request)) return {hello->nonce, hello->run_id};
  if (const auto* reach = std::get_if<NativeReach>(&request)) return {reach->nonce, reach->run_id};
  return {};
}

TokenGate::Step refuse(std::string text, std::string close, std::string_view cause) {
  return {.reply = NativeRefused{std::move(text)}, .close = std::move(close), .cause = cause};
}

}  // namespace

bool same_token(const SharedTokenCrypto& one, const SharedTokenCrypto& other) {
  constexpr std::string_view kText = "same token";
  if (!one || !other) return one == other;
  return one->equal(one->mac(kText), other->mac(kText));
}

TokenClaim::TokenClaim(const TokenCrypto& crypto)
    : crypto_(crypto), nonce_(to_hex(crypto.nonce())) {}

NativeProve TokenClaim::answer(const NativeChallenge& challenge, std::string_view first_json) {
  expected_ = proof_of(crypto_, "host", challenge.nonce, first_json);
  return {proof_of(crypto_, "node", challenge.nonce, first_json)};
}

bool TokenClaim::is_host(std::string_view proof) const {
  return !expected_.empty() && crypto_.equal(proof, expected_);
}

TokenGate::Step TokenGate::receive(std::string_view json) {
  MUSTER_CHECK(phase_ != Phase::Open);
  if (phase_ == Phase::First) return receive_first(json);
  const auto request = decode_native_request(json, {});
  const auto* prove = request ? std::get_if<NativeProve>(&*request) : nullptr;
  if (prove != nullptr) return receive_proof(*prove);
  return refuse("the token was asked for, and this is no proof of it",
                "native message: not the proof of the token", "token not proven");
}

TokenGate::Step TokenGate::receive_first(std::string_view json) {
  const auto request = decode_native_request(json, {});
  const auto* hello = request ? std::get_if<NativeHello>(&*request) : nullptr;
  // The message is passed on, so that the service refuses it with the reason. Nothing else of this
  // connection is served after that.
  if (!request || (hello != nullptr && hello->protocol_version != kNativeProtocolVersion))
    return {.serve = std::string(json)};
  const FirstMessage first = about(*request);
  if (first.nonce.empty())
    return refuse(
        "it lets in only nodes that have its token: give this node --rdzv-token-file FILE, with "
        "the rendezvous' own token in FILE (an older muster does not know that option)",
        "native message: a node without the token", "node without token");
  first_json_ = json;
  crypto_ = &tokens_->of(first.run);
  nonce_ = to_hex(crypto_->nonce());
  phase_ = Phase::Challenged;
  return {.reply = NativeChallenge{nonce_}};
}

TokenGate::Step TokenGate::receive_proof(const NativeProve& prove) {
  if (!crypto_->equal(prove.proof, proof_of(*crypto_, "node", nonce_, first_json_)))
    return refuse(
        "this node's token differs from the rendezvous' token: the files of --rdzv-token-file must "
        "have the same content (a run may have a token of its own there: --rdzv-run-tokens)",
        "native message: a node with another token", "wrong token");
  host_proof_ = proof_of(*crypto_, "host", nonce_, first_json_);
  phase_ = Phase::Open;
  return {.serve = std::exchange(first_json_, {})};
}

}  // namespace muster
