// Moves the bytes of one TLS connection between its TCP socket and a socket for the plain bytes.
//
// It never waits: the caller reports when a socket is ready, and reads the events to watch for
// next. At most one piece of kPieceBytes is held for each direction, so a slow reader slows the
// writer (backpressure).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/system/owned_fd.h"
#include "rendezvous/tls/tls_engine.h"
#include "rendezvous/tls/tls_status.h"

namespace muster {

class TlsLink {
 public:
  static constexpr std::size_t kPieceBytes = std::size_t{16} << 10;
  /// The work for one read from TCP grows with the number of records in it, and other connections
  /// wait meanwhile. So a read is large only for a peer whose records are not small.
  static constexpr std::size_t kLeastReadBytes = std::size_t{4} << 10;
  static constexpr std::size_t kMaxReadBytes = 2 * kPieceBytes;
  static constexpr std::size_t kSmallRecordBytes = std::size_t{1} << 10;

  enum class Phase {
    Handshake,
    Open,
    Draining,  // The plain side has closed. The bytes that it has written are still sent.
    Closing,   // Everything is sent. Later bytes are discarded until the peer closes, too.
    Over,
  };

  /// Both sockets must be non-blocking.
  TlsLink(OwnedFd tcp, OwnedFd plain, std::unique_ptr<TlsEngine> engine,
          std::shared_ptr<TlsStatus> status);
  TlsLink(const TlsLink&) = delete;
  TlsLink& operator=(const TlsLink&) = delete;
  ~TlsLink();

  Phase phase() const { return phase_; }
  const TlsFailure& failure() const { return failure_; }
  /// Whether bytes that the plain side has written may not yet be passed to TCP.
  bool has_unsent() const { return phase_ == Phase::Draining || !to_tcp_.empty(); }
  int tcp_fd() const { return tcp_.get(); }
  int plain_fd() const { return plain_.get(); }  // -1: closed.
  /// The epoll events to watch for. 0: the socket must not be watched at all.
  std::uint32_t tcp_interest() const;
  std::uint32_t plain_interest() const;

  /// Sends the first bytes of the handshake, if this side has some.
  void start() { send_to_tcp(); }
  void on_tcp(std::uint32_t events);
  void on_plain(std::uint32_t events);
  /// The time limit of the current phase is over.
  void time_out();
  /// Ends the connection at once.
  void end() { phase_ = Phase::Over; }

 private:
  void read_tcp();
  void read_plain();
  void send_to_tcp();
  bool send_to_plain();
  void record_peer_names();
  void deliver();
  void close_plain();
  void begin_closing();
  void fail(TlsFailure failure);

  OwnedFd tcp_;
  OwnedFd plain_;
  std::unique_ptr<TlsEngine> engine_;
  std::shared_ptr<TlsStatus> status_;
  Phase phase_ = Phase::Handshake;
  TlsFailure failure_;
  std::string to_tcp_;    // Ciphertext that was not passed to TCP yet.
  std::string to_plain_;  // Plaintext that was not passed to the plain side yet.
  std::size_t read_bytes_ = kLeastReadBytes;  // How many bytes the next read from TCP takes.
  std::size_t decrypted_bytes_ = 0;
  std::size_t decrypted_pieces_ = 0;  // At least the number of records.
  bool peer_names_recorded_ = false;
  bool tcp_ended_ = false;
  bool tcp_broken_ = false;  // Nothing can be sent any more.
  bool fin_sent_ = false;    // The sending direction of the TCP connection is shut down.
};

}  // namespace muster
