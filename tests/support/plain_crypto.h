// A TokenCrypto without OpenSSL, for tests of what is said and when.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "rendezvous/wire/token_proof.h"

namespace muster::testing {

/// Nobody's secret: what is said and when is tested here, and OpenSSL's part elsewhere.
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
