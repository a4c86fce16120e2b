// Decides which HTTP clients may read and change, if there is a token. Pure: the time is an
// argument, and TokenCrypto has the cryptographic primitives.
//
// A client reads with the key, with a proof of the token that is valid for one request, or in a
// browser with a cookie, which a link that can be used once sets. Each change needs a proof:
// docs/security.md.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "rendezvous/access/http_key.h"

namespace muster::http {

/// How long a link can be used (once), and how long a browser's session lasts.
inline constexpr Duration kLoginWithin = std::chrono::seconds(60);
inline constexpr Duration kSessionLasts = std::chrono::hours(12);
/// The numbers of links and sessions. A further one ends the oldest one.
inline constexpr std::size_t kMaxLogins = 16;
inline constexpr std::size_t kMaxSessions = 64;

/// The fields of a request that identify its sender. Empty: the request has no such field.
struct Credentials {
  std::string_view authorization;
  std::string_view cookie;
};

class HttpAccess {
 public:
  /// Null: there is no token. Then everybody may read, and this class does not decide about
  /// changes.
  explicit HttpAccess(SharedTokenCrypto crypto);

  bool has_token() const { return crypto_ != nullptr; }
  /// Whether the request has the key or a session's cookie. Always true without a token.
  bool may_read(const Credentials& credentials, Instant now);

  /// A nonce for one request of one connection. This function and the ones below must be called
  /// only if there is a token.
  std::string new_nonce() const;
  /// Whether the field has the proof of this request. `request.nonce` is the nonce that new_nonce()
  /// returned for this connection. Empty: none.
  bool proves(const ProvenRequest& request, std::string_view authorization) const;

  /// Returns the secret of a new link. To be called only for a client that may change.
  std::string begin_login(Instant now);
  /// Returns the Set-Cookie field for a browser that has followed the link. Returns std::nullopt if
  /// the link is wrong, used or too old.
  std::optional<std::string> finish_login(std::string_view secret, Instant now);

 private:
  struct Secret {
    std::string value;
    Instant ends{};
  };
  /// Compares with all secrets, so that the time needed reveals nothing about any of them.
  std::optional<std::size_t> find(const std::vector<Secret>& secrets, std::string_view value) const;
  std::string add(std::vector<Secret>& secrets, std::size_t most, Instant ends) const;

  SharedTokenCrypto crypto_;
  std::string read_key_;
  std::string cookie_name_;
  std::vector<Secret> logins_;
  std::vector<Secret> sessions_;
};

}  // namespace muster::http
