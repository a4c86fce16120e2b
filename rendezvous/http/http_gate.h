// Decides whether musterd answers a request: by the host name that a browser uses, the token, and
// the origin of changes. One object for each connection.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/ip/address.hpp>

#include "rendezvous/http/http_reply.h"
#include "rendezvous/http/http_session.h"

namespace muster::http {

class HttpGate {
 public:
  /// `shared` must outlive this object.
  HttpGate(Shared& shared, HttpPeer peer)
      : shared_(shared),
        peer_(std::move(peer.address)),
        secure_(peer.secure),
        tls_(std::move(peer.tls)) {}

  /// Returns std::nullopt if the request must be answered. `route` is null if the request names no
  /// resource.
  std::optional<Reply> refusal_of(const Route* route, const Request& request);
  /// The runs that the client may see and change, by the current rules. To be called only after the
  /// first request has come.
  RunScope scope() const;
  /// Whether the client has proven the token in an earlier request of this connection, by the key,
  /// a cookie or a proof. Always false without a token.
  bool has_proven() const { return has_proven_; }
  const boost::asio::ip::address& peer() const { return peer_; }
  /// Whether the key or cookie of the connection's stream of events still lets the client read: a
  /// session ends while a stream goes on.
  bool may_read_on() const;
  /// Creates a link for a browser, for a client that may change.
  Reply new_login();
  /// Answers a browser that follows a link.
  Reply log_in(const Login& login, const Request& request);

 private:
  std::optional<Reply> refusal_of_stranger(const Route* route, const Request& request);
  std::optional<Reply> refusal_of_run(const Route& route);
  std::vector<std::string> peer_names() const;
  std::optional<Reply> refusal_of_host(const Request& request) const;
  std::optional<Reply> refusal_of_reader(const Route* route, const Request& request);
  std::optional<Reply> refusal_of_operator(const Request& request);
  bool proves_token(const Request& request);
  Reply ask_for_token(const Request& request, bool may_read = false);

  Shared& shared_;
  boost::asio::ip::address peer_;
  bool secure_;
  std::shared_ptr<TlsStatus> tls_;  // Null: no TLS.
  std::string nonce_;               // The nonce for a proof in the next request. Empty: none.
  bool has_proven_ = false;
  // Of the request for a stream of events: whether it had a proof, and these fields.
  bool stream_is_proven_ = false;
  std::string stream_authorization_;
  std::string stream_cookie_;
};

}  // namespace muster::http
