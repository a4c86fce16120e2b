// TLS for code that uses plain sockets only. A thread connects a TCP socket that uses TLS to one
// end of a socket pair. The plain code reads and writes the other end as usual.
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

#include "base/system/owned_fd.h"
#include "rendezvous/tls/tls_context.h"
#include "rendezvous/tls/tls_status.h"

namespace muster {

/// The first byte of every TLS connection (a handshake record). No other protocol of a muster
/// server begins with it.
inline constexpr unsigned char kTlsFirstByte = 0x16;

/// The number of handshakes that one address may have at once at a server. Others wait.
inline constexpr std::size_t kMaxTlsHandshakesPerAddress = 64;
/// The number of clients that a server serves at once with the steps of their handshakes. Clients
/// that let it wait do not count.
inline constexpr std::size_t kMaxTlsHandshakesAtOnce = 16;
/// A client that has not gone on with its handshake for so long gives its turn to another one.
inline constexpr auto kTlsTurnStalled = std::chrono::milliseconds(200);
/// The number of ended connections that wait for the peer to close, too. Beyond it, connections end
/// at once.
inline constexpr std::size_t kMaxTlsClosing = 4096;
inline constexpr auto kTlsHandshakeWithin = std::chrono::seconds(10);
inline constexpr auto kTlsTurnWithin = std::chrono::seconds(30);
/// The time in which the peer must accept the bytes that were written before the plain side closed.
inline constexpr auto kTlsDrainWithin = std::chrono::seconds(30);
inline constexpr auto kTlsCloseWithin = std::chrono::seconds(2);
inline constexpr auto kTlsFinishWithin = std::chrono::seconds(2);

struct TlsConnection {
  /// Non-blocking and close-on-exec. Closing it closes the connection. Bytes that were written
  /// before are still sent (kTlsDrainWithin), or dropped if the handshake is not done yet.
  OwnedFd plain;
  std::shared_ptr<TlsStatus> status;
};

/// The thread starts with the first connection, and ends with this object. All connections end
/// then, too. Before that, the bytes that the plain sides have written are sent, for at most
/// kTlsFinishWithin. All members may be called on any thread.
class TlsPump {
 public:
  /// Called on the pump's thread when a connection has failed, in the handshake or later because of
  /// data that the peer has sent.
  using OnFailed = std::function<void(const std::string& peer, const TlsFailure& failure)>;

  explicit TlsPump(SharedTlsContext context, OnFailed on_failed = {});
  TlsPump(const TlsPump&) = delete;
  TlsPump& operator=(const TlsPump&) = delete;
  ~TlsPump();

  /// Sets the context of later connections.
  void renew(SharedTlsContext context);
  SharedTlsContext context() const;

  /// Adds TLS to the connected socket `tcp`. Returns the plain end at once, while the handshake
  /// runs. If the handshake fails, the plain end is closed, and its status has the reason. `peer`:
  /// at a client, the host's name or numeric address, as for TlsContext::new_engine(). At a server,
  /// the client's numeric address.
  boost::system::result<TlsConnection> join(OwnedFd tcp, const std::string& peer);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Null: no TLS.
using SharedTls = std::shared_ptr<TlsPump>;

}  // namespace muster
