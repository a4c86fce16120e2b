// Who may read and change over HTTP where there is a token. Pure: the time is an argument, the
// primitives are TokenCrypto's.
//
// Programs show the key for reading in each request. A browser gets a cookie, by a link that is
// good once. Changes need a proof that is good for one request: docs/security.md.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/core/time.h"
#include "rendezvous/wire/http_key.h"

namespace muster::http {

/// A link is good for so long, and once; a browser's session for so long.
inline constexpr Duration kLoginWithin = std::chrono::seconds(60);
inline constexpr Duration kSessionLasts = std::chrono::hours(12);
/// Beyond these the oldest one ends.
inline constexpr std::size_t kMaxLogins = 16;
inline constexpr std::size_t kMaxSessions = 64;

/// What a request says of its sender; empty where it has no such field.
struct Credentials {
  std::string_view authorization;
  std::string_view cookie;
};

class HttpAccess {
 public:
  /// Without a token (null) everybody may read, and this class decides nothing about changes.
  explicit HttpAccess(SharedTokenCrypto crypto);

  bool has_token() const { return crypto_ != nullptr; }
  bool may_read(const Credentials& credentials, Instant now);

  /// For one request of one connection. Only with a token, like all below.
  std::string new_nonce() const;
  /// `change.nonce` is what new_nonce() gave to this connection; empty: none.
  bool may_change(const HttpChange& change, std::string_view authorization) const;

  /// The secret of a new link. Only for who may change.
  std::string begin_login(Instant now);
  /// The Set-Cookie field for a browser that has followed the link; nothing if the link is not
  /// good, or not any more.
  std::optional<std::string> finish_login(std::string_view secret, Instant now);

 private:
  struct Secret {
    std::string value;
    Instant ends{};
  };
  /// Looks at all of them, so that the time says nothing about any.
  std::optional<std::size_t> find(const std::vector<Secret>& secrets, std::string_view value) const;
  std::string add(std::vector<Secret>& secrets, std::size_t most, Instant ends) const;

  SharedTokenCrypto crypto_;
  std::string read_key_;
  std::string cookie_name_;
  std::vector<Secret> logins_;
  std::vector<Secret> sessions_;
};

}  // namespace muster::http
