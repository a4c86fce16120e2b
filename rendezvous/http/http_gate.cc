#include "rendezvous/http/http_gate.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "base/printable_text.h"
#include "base/system/clock.h"

namespace muster::http {

namespace beast = boost::beast;

namespace {

// The error is the same for a wrong key, an old key and no key.
RouteError not_allowed_in() {
  return {401, "token_needed",
          "this musterd asks for its token: give musterctl --rdzv-token-file FILE. For a browser, "
          "`musterctl open` makes a link; for curl and Prometheus, `musterctl key` prints the key "
          "for 'Authorization: Bearer KEY', which can read, and cannot change anything"};
}
RouteError needs_proof() {
  return {401, "token_needed",
          "the key is right, but only a proof of the token reads logs and changes runs: use "
          "musterctl --rdzv-token-file FILE"};
}

// For people with a browser. `sentence` is a text of this file: nothing from outside is in it.
Reply page_reply(unsigned status, const std::string& sentence) {
  return {
      status, "text/html; charset=utf-8",
      "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<meta name=\"color-scheme\" content=\"light dark\"><title>muster asks for its token"
      "</title></head>\n<body>\n<h1>muster</h1>\n<p>" +
          sentence +
          "</p>\n<pre>musterctl --rdzv-token-file FILE open</pre>\n<p>It prints a link for this "
          "browser, which works once, within a minute.</p>\n</body>\n</html>\n"};
}

bool is_browser(const Request& request) {
  return request[beast::http::field::accept].find("text/html") != beast::string_view::npos;
}

Credentials credentials_of(const Request& request) {
  return {.authorization = request[beast::http::field::authorization],
          .cookie = request[beast::http::field::cookie]};
}

/// `cause` must have static lifetime.
void log_refused(Shared& shared, const boost::asio::ip::address& peer, std::string_view cause,
                 std::string_view reason) {
  if (const auto left_out = shared.refused_lines.admit(now(), cause, peer))
    spdlog::warn("http_refused peer={} reason=\"{}\" left_out={}", peer.to_string(),
                 printable_text(reason), *left_out);
}

}  // namespace

/// Refuses other host names, if only this machine reaches the server. Otherwise a page of another
/// site, in a browser on this machine, could read data that is for this machine only (DNS
/// rebinding).
std::optional<Reply> HttpGate::refusal_of_host(const Request& request) const {
  if (!shared_.loopback_only) return std::nullopt;
  const std::string host(request[beast::http::field::host]);
  if (names_loopback(host)) return std::nullopt;
  // A probe by HTTP/1.0, which has no such field. A browser always sends it.
  if (host.empty() && request.version() < 11) return std::nullopt;
  return error_reply({421, "misdirected_request",
                      "this server is for its own machine: ask for localhost or 127.0.0.1, also "
                      "through ssh -L"});
}

std::optional<Reply> HttpGate::refusal_of(const Route* route, const Request& request) {
  if (auto refusal = refusal_of_stranger(route, request)) return refusal;
  return route == nullptr ? std::nullopt : refusal_of_run(*route);
}

std::vector<std::string> HttpGate::peer_names() const {
  return tls_ ? tls_->peer_names() : std::vector<std::string>();
}

RunScope HttpGate::scope() const {
  return shared_.tls_rules ? shared_.tls_rules->scope_of(peer_names()) : RunScope();
}

bool HttpGate::may_read_on() const {
  return stream_is_proven_ ||
         shared_.access.may_read({stream_authorization_, stream_cookie_}, now());
}

/// The answer is the same whether the run is known here or not: only clients that may join the run
/// may learn that.
std::optional<Reply> HttpGate::refusal_of_run(const Route& route) {
  const RunScope admitted = scope();
  std::string_view run = run_of(route);
  if (run.empty() || admitted.admits(run)) {
    const auto* stream = std::get_if<EventStream>(&route);
    if (stream == nullptr) return std::nullopt;
    const auto refused =
        std::find_if(stream->watched.begin(), stream->watched.end(),
                     [&](const std::string& watched) { return !admitted.admits(watched); });
    if (refused == stream->watched.end()) return std::nullopt;
    run = *refused;
  }
  const std::string text = not_in_scope_text(run, peer_names());
  log_refused(shared_, peer_, "http certificate", text);
  return error_reply({403, "run_not_allowed", text});
}

/// The checks before any other: host name, TLS and token. `route` is null if the request names no
/// resource.
std::optional<Reply> HttpGate::refusal_of_stranger(const Route* route, const Request& request) {
  if (auto refusal = refusal_of_host(request)) return refusal;
  // Monitors may check whether musterd is alive without a token. Links have their own secret.
  const bool alive = route != nullptr && (std::holds_alternative<Health>(*route) ||
                                          std::holds_alternative<Ready>(*route));
  if (alive) return std::nullopt;
  if (shared_.tls && !secure_)
    return error_reply({400, "https_needed",
                        "this musterd speaks HTTPS: ask for https://, with musterctl by --tls-ca "
                        "FILE"});
  if (route != nullptr && std::holds_alternative<Login>(*route)) return std::nullopt;
  if (route != nullptr && for_operators(*route)) return refusal_of_operator(request);
  return refusal_of_reader(route, request);
}

std::optional<Reply> HttpGate::refusal_of_reader(const Route* route, const Request& request) {
  const Credentials credentials = credentials_of(request);
  const bool proven = shared_.access.has_token() && proves_token(request);
  if (!proven && !shared_.access.may_read(credentials, now())) return ask_for_token(request);
  has_proven_ = shared_.access.has_token();
  if (route != nullptr && std::holds_alternative<EventStream>(*route)) {
    stream_is_proven_ = proven;
    stream_authorization_ = credentials.authorization;
    stream_cookie_ = credentials.cookie;
  }
  return std::nullopt;
}

/// Whether the request has the proof for the nonce of the reply before it. To be called only if
/// there is a token.
bool HttpGate::proves_token(const Request& request) {
  const std::string nonce = std::exchange(nonce_, {});  // Valid for one request, right or wrong.
  const std::string method(request.method_string());
  const std::string target(request.target());
  return shared_.access.proves({.method = method, .target = target, .nonce = nonce},
                               request[beast::http::field::authorization]);
}

/// With a token, a change needs the proof, which no web page can compute. Without a token, only
/// users of this machine may change anything. The field X-Muster-Action keeps out pages of other
/// origins in their browsers: a browser sends it only after a preflight request, which is refused.
std::optional<Reply> HttpGate::refusal_of_operator(const Request& request) {
  if (shared_.access.has_token()) {
    if (proves_token(request)) {
      has_proven_ = true;
      return std::nullopt;
    }
    return ask_for_token(request, shared_.access.may_read(credentials_of(request), now()));
  }
  const std::string host(request[beast::http::field::host]);
  const bool local = peer_.is_loopback() && names_loopback(host);
  if (local && request["X-Muster-Action"] == "1") return std::nullopt;
  return error_reply({403, "forbidden",
                      "runs are changed, and their logs read, from musterd's own machine only "
                      "(also through ssh -L), with the field 'X-Muster-Action: 1'"});
}

/// `may_read`: the request has a right key or cookie, and needs a proof.
Reply HttpGate::ask_for_token(const Request& request, bool may_read) {
  // musterctl's first request has no proof: it gets the nonce by this reply.
  if (!request[beast::http::field::authorization].empty() && !may_read)
    log_refused(shared_, peer_, "http token",
                "the key or the proof is not that of this musterd's token");
  Reply reply = error_reply(may_read ? needs_proof() : not_allowed_in());
  if (!may_read && request.target() == "/" && is_browser(request))
    reply = page_reply(401,
                       "This musterd asks for its token. Run this where you have the token's "
                       "file:");
  nonce_ = shared_.access.new_nonce();
  reply.fields = {{beast::http::field::www_authenticate, "Bearer realm=\"musterd\""},
                  {beast::http::field::www_authenticate, http_challenge(nonce_)}};
  return reply;
}

Reply HttpGate::new_login() {
  if (!shared_.access.has_token())
    return error_reply(
        {409, "not_possible",
         "this musterd has no token, so its page asks for no login: open its address"});
  const nlohmann::json link{{"path", "/login?secret=" + shared_.access.begin_login(now())}};
  return {200, kJsonType, link.dump() + "\n"};
}

Reply HttpGate::log_in(const Login& login, const Request& request) {
  std::optional<std::string> cookie;
  if (shared_.access.has_token() && request.method() == beast::http::verb::get)
    cookie = shared_.access.finish_login(login.secret, now());
  if (!cookie && is_browser(request))
    return page_reply(401,
                      "This link was used already, is older than a minute, or is another "
                      "musterd's. Make a new one:");
  if (!cookie)
    return error_reply({401, "link_not_good",
                        "this link was used already, is older than a minute, or is another "
                        "musterd's: `musterctl open` makes a new one"});
  Reply reply{303, kJsonType, "{\"ok\":true}\n"};
  if (secure_) *cookie += "; Secure";
  reply.fields = {{beast::http::field::location, "/"}, {beast::http::field::set_cookie, *cookie}};
  return reply;
}

}  // namespace muster::http
