// The socket of one client: its two ends, and whether it uses TLS.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/net/listener.h"
#include "base/net/unmapped.h"
#include "base/system/owned_fd.h"
#include "rendezvous/tls/tls_pump.h"

namespace muster {

class ClientSocket {
 public:
  ClientSocket(OwnedFd fd, const boost::asio::ip::tcp::endpoint& peer)
      : fd_(std::move(fd)), peer_(peer) {}
  ClientSocket(const ClientSocket&) = delete;
  ClientSocket& operator=(const ClientSocket&) = delete;

  /// With TLS: the plain end, which the TLS pump gives.
  int fd() const { return fd_.get(); }
  void close() { fd_ = {}; }

  const boost::asio::ip::tcp::endpoint& peer() const { return peer_; }
  boost::asio::ip::address peer_address() const { return unmapped(peer_.address()); }
  /// The server's own end, as the peer reaches it. Unspecified if the kernel does not know it.
  boost::asio::ip::tcp::endpoint local() const;

  /// Whether nobody knows yet if the client speaks TLS: nothing has been read.
  bool is_undecided() const { return kind_ == Kind::Undecided; }
  bool is_secure() const { return kind_ == Kind::Secure; }
  void stay_plain() { kind_ = Kind::Plain; }
  /// Gives the socket to the caller, who adds TLS. become_secure() then gives back the plain end.
  OwnedFd release();
  void become_secure(TlsConnection secure);
  /// The names of the client's certificate. Empty: it uses no TLS, or has no certificate.
  std::vector<std::string> peer_names() const;

 private:
  enum class Kind : std::uint8_t { Undecided, Plain, Secure };
  /// What only a connection with TLS has.
  struct Secured {
    boost::asio::ip::tcp::endpoint local;  // Of the TCP connection.
    std::shared_ptr<TlsStatus> status;     // Null until TLS begins.
  };

  OwnedFd fd_;
  Kind kind_ = Kind::Undecided;
  boost::asio::ip::tcp::endpoint peer_;
  std::unique_ptr<Secured> secured_;  // Null until release().
};

}  // namespace muster
