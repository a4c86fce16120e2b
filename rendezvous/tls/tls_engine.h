// One TLS connection as a function of bytes: no sockets, no threads, no waiting.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

/// Why a TLS connection has failed.
struct TlsFailure {
  enum class Kind {
    None,
    Lost,     // The connection ended before the handshake did.
    Refused,  // One side does not accept the other side's certificate or data.
  };
  Kind kind = Kind::None;
  std::string reason = {};  // A sentence without its full stop. "it" means the peer.
};

class TlsEngine {
 public:
  enum class State {
    Handshake,
    Open,
    Ended,   // The peer has announced that it sends no more.
    Failed,  // failure() has the reason. take_outgoing() may return an alert for the peer.
  };
  TlsEngine() = default;
  TlsEngine(const TlsEngine&) = delete;
  TlsEngine& operator=(const TlsEngine&) = delete;
  virtual ~TlsEngine() = default;

  /// Bytes from the peer. They are kept until read() decrypts them. To bound them, the caller calls
  /// this only after read() has returned 0.
  virtual void receive(std::string_view ciphertext) = 0;
  /// The peer's connection has ended.
  virtual void end_of_input() = 0;
  /// Continues the handshake, and decrypts up to `most` bytes to `to`. Returns 0 if no more bytes
  /// are available before the next receive().
  virtual std::size_t read(char* to, std::size_t most) = 0;
  /// Encrypts. Not to be called in State::Handshake.
  virtual void write(std::string_view plaintext) = 0;
  /// Announces to the peer that no more data follows. Has no effect during the handshake.
  virtual void close() = 0;
  /// Returns the bytes that must be sent to the peer. May be empty.
  virtual std::string take_outgoing() = 0;

  virtual State state() const = 0;
  virtual const TlsFailure& failure() const = 0;
  /// The DNS names among the alternative names of the peer's verified certificate, as to_dns_name()
  /// writes them, at most kMaxPeerNames. Other names are left out, and the subject's common name is
  /// never used. Empty during the handshake, and if the peer has no certificate.
  virtual std::vector<std::string> peer_names() const = 0;
};

}  // namespace muster
