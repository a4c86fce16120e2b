#include "rendezvous/http/http_access.h"

#include <algorithm>
#include <utility>

#include "base/hex.h"

namespace muster::http {
namespace {

constexpr std::string_view kBearer = "Bearer ";
constexpr std::string_view kProof = "Muster proof=\"";
constexpr std::size_t kCookieNameBytes = 4;

template <typename Secrets>
void forget_ended(Secrets& secrets, Instant now) {
  std::erase_if(secrets, [now](const auto& secret) { return secret.ends <= now; });
}

// Calls `visit` with the value of each cookie of this name, because a browser may send several.
template <typename Visit>
void for_each_cookie(std::string_view field, std::string_view name, Visit visit) {
  while (!field.empty()) {
    std::string_view pair = field.substr(0, field.find(';'));
    field.remove_prefix(std::min(field.size(), pair.size() + 1));
    while (pair.starts_with(' '))
      pair.remove_prefix(1);
    if (pair.size() > name.size() && pair.starts_with(name) && pair[name.size()] == '=')
      visit(pair.substr(name.size() + 1));
  }
}

}  // namespace

HttpAccess::HttpAccess(SharedTokenCrypto crypto) : crypto_(std::move(crypto)) {
  if (!crypto_) return;
  read_key_ = http_read_key(*crypto_);
  // Browsers send cookies to all ports of a host, so two musterds must not use the same cookie
  // name.
  cookie_name_ = "muster_session_" + to_hex(crypto_->nonce().substr(0, kCookieNameBytes));
}

bool HttpAccess::may_read(const Credentials& credentials, Instant now) {
  if (!crypto_) return true;
  if (credentials.authorization.starts_with(kBearer) &&
      crypto_->equal(credentials.authorization.substr(kBearer.size()), read_key_))
    return true;
  forget_ended(sessions_, now);
  bool known = false;
  for_each_cookie(credentials.cookie, cookie_name_, [&](std::string_view value) {
    if (find(sessions_, value)) known = true;
  });
  return known;
}

std::string HttpAccess::new_nonce() const {
  return to_hex(crypto_->nonce());
}

bool HttpAccess::proves(const ProvenRequest& request, std::string_view authorization) const {
  if (request.nonce.empty() || !authorization.starts_with(kProof) || !authorization.ends_with('"'))
    return false;
  authorization.remove_prefix(kProof.size());
  if (authorization.empty()) return false;
  authorization.remove_suffix(1);
  return crypto_->equal(authorization, http_request_proof(*crypto_, request));
}

std::string HttpAccess::begin_login(Instant now) {
  forget_ended(logins_, now);
  return add(logins_, kMaxLogins, now + kLoginWithin);
}

std::optional<std::string> HttpAccess::finish_login(std::string_view secret, Instant now) {
  forget_ended(logins_, now);
  const auto found = find(logins_, secret);
  if (!found) return std::nullopt;
  logins_.erase(logins_.begin() + static_cast<std::ptrdiff_t>(*found));
  forget_ended(sessions_, now);
  const std::string value = add(sessions_, kMaxSessions, now + kSessionLasts);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(kSessionLasts).count();
  // Without "Secure": over plain HTTP a browser would not keep the cookie. With TLS the caller adds
  // it.
  return cookie_name_ + "=" + value + "; Path=/; Max-Age=" + std::to_string(seconds) +
         "; HttpOnly; SameSite=Strict";
}

std::optional<std::size_t> HttpAccess::find(const std::vector<Secret>& secrets,
                                            std::string_view value) const {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < secrets.size(); ++i)
    if (crypto_->equal(value, secrets[i].value)) found = i;
  return found;
}

std::string HttpAccess::add(std::vector<Secret>& secrets, std::size_t most, Instant ends) const {
  if (secrets.size() >= most) secrets.erase(secrets.begin());  // The first one is the oldest.
  return secrets.emplace_back(Secret{to_hex(crypto_->nonce()), ends}).value;
}

}  // namespace muster::http
