// TLS for code that knows plain sockets only: a thread that joins a TCP socket which speaks TLS
// with one end of a socket pair. The other end is for the plain code, which reads and writes as
// ever.
//
// Why a socket pair: docs/decisions/0019-tls.md.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include <boost/system/error_code.hpp>
#include <boost/system/result.hpp>

#include "rendezvous/net/owned_fd.h"
#include "rendezvous/tls/tls_context.h"
#include "rendezvous/tls/tls_status.h"

namespace muster {

/// The first byte of every TLS connection (a handshake record): no other protocol here begins so.
inline constexpr unsigned char kTlsFirstByte = 0x16;

/// Handshakes of one address at once at a server; the others wait for their turn.
inline constexpr std::size_t kMaxTlsHandshakesPerAddress = 64;
/// Connections that are over and wait for the peer to close, too. Beyond it nothing is waited for.
inline constexpr std::size_t kMaxTlsClosing = 4096;
inline constexpr auto kTlsHandshakeWithin = std::chrono::seconds(10);
inline constexpr auto kTlsTurnWithin = std::chrono::seconds(30);
/// For the peer to take what was written before the plain side has closed.
inline constexpr auto kTlsDrainWithin = std::chrono::seconds(30);
inline constexpr auto kTlsCloseWithin = std::chrono::seconds(2);
inline constexpr auto kTlsFinishWithin = std::chrono::seconds(2);

struct TlsConnection {
  /// Non-blocking, close-on-exec. To close it closes the connection: what was written before is
  /// still sent (kTlsDrainWithin), unless the handshake is not done yet; then it is dropped.
  OwnedFd plain;
  std::shared_ptr<TlsStatus> status;
};

/// Its thread begins with the first connection, and ends with this object, and with it all
/// connections; what the plain sides have written is sent before, for kTlsFinishWithin at most. All
/// members are good for any thread.
class TlsPump {
 public:
  /// Called on the pump's thread when a connection has failed: in the handshake, or later by what
  /// the peer has sent.
  using OnFailed = std::function<void(const std::string& peer, const TlsFailure& failure)>;

  explicit TlsPump(SharedTlsContext context, OnFailed on_failed = {});
  TlsPump(const TlsPump&) = delete;
  TlsPump& operator=(const TlsPump&) = delete;
  ~TlsPump();

  /// For the connections from now on.
  void renew(SharedTlsContext context);
  SharedTlsContext context() const;

  /// Speaks TLS over `tcp`, a connected socket: the plain end is there at once, the handshake goes
  /// on meanwhile. If it fails, the plain end is closed, and its status says why. `peer`: at the
  /// client's side the host's name or numeric address, as TlsContext::new_engine() wants it; at the
  /// server's side the client's numeric address.
  boost::system::result<TlsConnection> join(OwnedFd tcp, const std::string& peer);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Null: no TLS.
using SharedTls = std::shared_ptr<TlsPump>;

}  // namespace muster
