// A TokenCrypto without OpenSSL, for tests of the messages and their order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "rendezvous/access/token_proof.h"

namespace muster::testing {

/// This is not secret. Tests with it check the messages and their order; other tests check
/// OpenSSL's part.
class PlainCrypto final : public TokenCrypto {
 public:
  explicit PlainCrypto(std::string token) : token_(std::move(token)) {}
  std::string nonce() const override {
    return std::string(kNonceBytes, static_cast<char>(++last_));
  }
  std::string mac(std::string_view text) const override {
    std::uint64_t sum = 14695981039346656037U;
    for (const char c : token_ + '\0' + std::string(text))
      sum = (sum ^ static_cast<unsigned char>(c)) * 1099511628211U;
    std::string bytes;
    for (int i = 0; i < 32; ++i)
      bytes += static_cast<char>(sum >> (i % 8 * 8));
    return bytes;
  }
  bool equal(std::string_view a, std::string_view b) const override {
    ++compared;
    return a == b;
  }
  mutable int compared = 0;

 private:
  std::string token_;
  mutable int last_ = 0;
};

}  // namespace muster::testing
