// Whom a request comes from, and whether musterd answers it: the name that a browser uses, the
// token, and where changes come from. One for each connection.
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
  /// `shared` outlives it.
  HttpGate(Shared& shared, HttpPeer peer)
      : shared_(shared),
        peer_(std::move(peer.address)),
        secure_(peer.secure),
        tls_(std::move(peer.tls)) {}

  /// Nothing: the request is to be answered. `route`: null if it names no resource.
  std::optional<Reply> refusal_of(const Route* route, const Request& request);
  /// The runs that the client may see and change, by the rules of this moment. Not before its first
  /// request has come.
  RunScope scope() const;
  /// Makes a link for a browser, for somebody who may change.
  Reply new_login();
  /// Answers a browser that follows one.
  Reply log_in(const Login& login, const Request& request);

 private:
  std::optional<Reply> refusal_of_stranger(const Route* route, const Request& request);
  std::optional<Reply> refusal_of_run(const Route& route);
  std::vector<std::string> peer_names() const;
  std::optional<Reply> refusal_of_host(const Request& request) const;
  std::optional<Reply> refusal_of_operator(const Request& request);
  Reply ask_for_token(const Request& request);

  Shared& shared_;
  boost::asio::ip::address peer_;
  bool secure_;
  std::shared_ptr<TlsStatus> tls_;  // Null: plain.
  std::string nonce_;               // What the next request for a change must prove; empty: none.
};

}  // namespace muster::http
