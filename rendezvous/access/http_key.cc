#include "rendezvous/access/http_key.h"

#include "base/hex.h"

namespace muster {
namespace {

// The texts of these HMACs begin differently from those of the native door: they are never equal.
constexpr std::string_view kHttp = "muster http, protocol 1";
constexpr std::string_view kChallenge = "Muster nonce=\"";

}  // namespace

std::string http_read_key(const TokenCrypto& crypto) {
  return to_hex(crypto.mac(std::string(kHttp) + "\nread"));
}

std::string http_request_proof(const TokenCrypto& crypto, const ProvenRequest& request) {
  std::string text(kHttp);
  text.append("\nchange\n").append(request.nonce);
  text.append("\n").append(request.method);
  text.append("\n").append(request.target);
  return to_hex(crypto.mac(text));
}

std::string http_challenge(std::string_view nonce) {
  return std::string(kChallenge).append(nonce).append("\"");
}

std::string_view http_challenge_nonce(std::string_view field) {
  if (!field.starts_with(kChallenge)) return {};
  field.remove_prefix(kChallenge.size());
  const std::size_t end = field.find('"');
  return end == std::string_view::npos ? std::string_view() : field.substr(0, end);
}

}  // namespace muster
