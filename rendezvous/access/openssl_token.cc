#include "rendezvous/access/openssl_token.h"

#include <utility>

#ifdef MUSTER_OPENSSL
#include <dlfcn.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <array>

#include "base/check.h"
#include "base/system/library_function.h"
#endif

namespace muster {

#ifdef MUSTER_OPENSSL
namespace {

struct LibCrypto {
  // The functions that are used are the same in both versions.
  static constexpr std::array<const char*, 2> kLibraries = {"libcrypto.so.3", "libcrypto.so.1.1"};

  decltype(&::HMAC) hmac = nullptr;
  decltype(&::EVP_sha256) sha256 = nullptr;
  decltype(&::RAND_bytes) rand_bytes = nullptr;
  decltype(&::CRYPTO_memcmp) memcmp = nullptr;

  /// Loads the library, which stays loaded. Returns an empty text, or what is missing.
  std::string open() {
    void* library = nullptr;
    std::string trouble;
    for (const char* name : kLibraries) {
      if (library != nullptr) break;
      library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr) trouble.append(trouble.empty() ? "" : "; ").append(::dlerror());
    }
    if (library == nullptr) return trouble;
    const bool complete = find_function(library, "HMAC", hmac) &&
                          find_function(library, "EVP_sha256", sha256) &&
                          find_function(library, "RAND_bytes", rand_bytes) &&
                          find_function(library, "CRYPTO_memcmp", memcmp);
    return complete ? std::string() : ::dlerror();
  }
};

class OpensslToken final : public TokenCrypto {
 public:
  OpensslToken(LibCrypto library, std::string token)
      : library_(library), token_(std::move(token)) {}

  std::string nonce() const override {
    std::array<unsigned char, kNonceBytes> bytes{};
    // Without random numbers, a proof would prove nothing.
    MUSTER_CHECK(library_.rand_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1);
    return {bytes.begin(), bytes.end()};
  }
  std::string mac(std::string_view text) const override {
    std::array<unsigned char, 64> bytes{};
    unsigned int size = 0;
    const auto* data = reinterpret_cast<const unsigned char*>(text.data());
    MUSTER_CHECK(library_.hmac(library_.sha256(), token_.data(), static_cast<int>(token_.size()),
                               data, text.size(), bytes.data(), &size) != nullptr);
    return {bytes.begin(), bytes.begin() + size};
  }
  bool equal(std::string_view a, std::string_view b) const override {
    return a.size() == b.size() && library_.memcmp(a.data(), b.data(), a.size()) == 0;
  }

 private:
  LibCrypto library_;
  std::string token_;
};

}  // namespace

boost::system::result<SharedTokenCrypto, TokenError> make_token_crypto(std::string token) {
  LibCrypto library;
  if (const std::string trouble = library.open(); !trouble.empty())
    return TokenError{"a token needs OpenSSL's libcrypto, which cannot be loaded (" + trouble +
                      "); install the package libssl3"};
  SharedTokenCrypto crypto = std::make_shared<OpensslToken>(library, std::move(token));
  return crypto;
}

#else

boost::system::result<SharedTokenCrypto, TokenError> make_token_crypto(std::string) {
  return TokenError{
      "this muster was built without OpenSSL (MUSTER_OPENSSL=OFF), so it cannot use a token; take "
      "a "
      "build that has it"};
}

#endif

boost::system::result<SharedTokenCrypto, TokenError> load_token(const std::string& path) {
  if (path.empty()) return SharedTokenCrypto();
  auto token = read_token_file(path);
  if (!token) return token.error();
  return make_token_crypto(*std::move(token));
}

boost::system::result<HostTokens::OfRuns, TokenError> load_run_tokens(const std::string& path) {
  HostTokens::OfRuns tokens;
  if (path.empty()) return tokens;
  const auto texts = read_run_tokens_file(path);
  if (!texts) return texts.error();
  for (const auto& [run, text] : *texts) {
    auto crypto = make_token_crypto(text);
    if (!crypto) return crypto.error();
    tokens.emplace(run, *std::move(crypto));
  }
  return tokens;
}

}  // namespace muster
