// One TLS connection as bytes in and bytes out: no sockets, no threads, no waiting.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

/// Why a TLS connection has come to nothing.
struct TlsFailure {
  enum class Kind {
    None,
    Lost,     // The connection ended before the handshake did.
    Refused,  // One side does not accept what the other one shows or sends.
  };
  Kind kind = Kind::None;
  std::string reason = {};  // A sentence without its full stop; "it" is the peer.
};

class TlsEngine {
 public:
  enum class State {
    Handshake,
    Open,
    Ended,   // The peer has said that it sends no more.
    Failed,  // failure() says why. An alert for the peer may be in take_outgoing().
  };
  TlsEngine() = default;
  TlsEngine(const TlsEngine&) = delete;
  TlsEngine& operator=(const TlsEngine&) = delete;
  virtual ~TlsEngine() = default;

  /// What has come from the peer. It is kept until read() takes it: the caller bounds it by calling
  /// this only when read() has found nothing more.
  virtual void receive(std::string_view ciphertext) = 0;
  /// The peer's connection has ended.
  virtual void end_of_input() = 0;
  /// Goes on with the handshake, and decrypts up to `most` bytes to `to`. 0: nothing more is to be
  /// had before the next receive().
  virtual std::size_t read(char* to, std::size_t most) = 0;
  /// Encrypts. Only in State::Open.
  virtual void write(std::string_view plaintext) = 0;
  /// Says to the peer that nothing more follows. Of no effect during the handshake.
  virtual void close() = 0;
  /// What is to be sent to the peer; empty: nothing.
  virtual std::string take_outgoing() = 0;

  virtual State state() const = 0;
  virtual const TlsFailure& failure() const = 0;
  /// The DNS names that the peer's verified certificate is for: its alternative names, as
  /// to_dns_name() makes them, at most kMaxPeerNames. What is no DNS name is left out, and the
  /// subject's common name never counts. Empty during the handshake, and without a certificate.
  virtual std::vector<std::string> peer_names() const = 0;
};

}  // namespace muster
