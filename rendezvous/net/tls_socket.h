// TLS around Asio's sockets: a client's, and what a server logs.
#pragma once

#include <memory>
#include <string>

#include <boost/asio/ip/tcp.hpp>
#include <boost/system/result.hpp>

#include "rendezvous/tls/tls_pump.h"

namespace muster {

/// What the plain end of a connection does not know of itself.
struct SecuredSocket {
  std::shared_ptr<TlsStatus> status;
  boost::asio::ip::tcp::endpoint local;   // Of TCP.
  boost::asio::ip::tcp::endpoint remote;  // Of TCP.
};

/// Speaks TLS over the connected `socket`, which is the plain end from then on: what it reads and
/// writes goes through `tls`. `host`: the name or numeric address that the server's certificate
/// must be for. An error leaves the socket closed.
boost::system::result<SecuredSocket> secure_socket(boost::asio::ip::tcp::socket& socket,
                                                   TlsPump& tls, const std::string& host);

/// For a server: failed handshakes are lines of the log, few of them for each address.
SharedTls make_tls_server(SharedTlsContext context);

/// For a client.
SharedTls make_tls_client(SharedTlsContext context);

}  // namespace muster
