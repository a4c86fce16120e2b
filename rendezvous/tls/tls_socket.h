// Adds TLS to Asio's sockets of clients, and creates the TlsPump of servers and clients.
#pragma once

#include <memory>
#include <string>

#include <boost/asio/ip/tcp.hpp>
#include <boost/system/result.hpp>

#include "rendezvous/tls/tls_pump.h"

namespace muster {

/// The properties of the TCP connection, which the plain end does not have.
struct SecuredSocket {
  std::shared_ptr<TlsStatus> status;
  boost::asio::ip::tcp::endpoint local;   // Of the TCP connection.
  boost::asio::ip::tcp::endpoint remote;  // Of the TCP connection.
};

/// Adds TLS to the connected `socket`, which becomes the plain end: `tls` encrypts and decrypts
/// everything that it sends and receives. `host` is the name or numeric address that the server's
/// certificate must have. An error leaves the socket closed.
boost::system::result<SecuredSocket> secure_socket(boost::asio::ip::tcp::socket& socket,
                                                   TlsPump& tls, const std::string& host);

/// For a server. Failed handshakes are logged, with a limit for each address.
SharedTls make_tls_server(SharedTlsContext context);

/// For a client.
SharedTls make_tls_client(SharedTlsContext context);

}  // namespace muster
