// Carries the bytes of one TLS connection between its TCP socket and a socket with the plain bytes.
//
// It never waits: it is told when a socket is ready, and says what it should be told next. At most
// one piece of kPieceBytes is held for each direction: who does not read stops who writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "rendezvous/net/owned_fd.h"
#include "rendezvous/tls/tls_engine.h"
#include "rendezvous/tls/tls_status.h"

namespace muster {

class TlsLink {
 public:
  static constexpr std::size_t kPieceBytes = std::size_t{16} << 10;

  enum class Phase {
    Handshake,
    Open,
    Draining,  // The plain side has closed: what it has written is still sent.
    Closing,   // All is sent: what still comes is thrown away until the peer closes, too.
    Over,
  };

  /// Both sockets are non-blocking.
  TlsLink(OwnedFd tcp, OwnedFd plain, std::unique_ptr<TlsEngine> engine,
          std::shared_ptr<TlsStatus> status);
  TlsLink(const TlsLink&) = delete;
  TlsLink& operator=(const TlsLink&) = delete;
  ~TlsLink();

  Phase phase() const { return phase_; }
  const TlsFailure& failure() const { return failure_; }
  /// Something that the plain side has written is not yet TCP's.
  bool sends() const { return phase_ == Phase::Draining || !to_tcp_.empty(); }
  int tcp_fd() const { return tcp_.get(); }
  int plain_fd() const { return plain_.get(); }  // -1: closed.
  /// Events of epoll to be told of; 0: none, and the socket must not be watched at all.
  std::uint32_t tcp_interest() const;
  std::uint32_t plain_interest() const;

  /// Sends what is to be sent first.
  void start() { send_to_tcp(); }
  void on_tcp(std::uint32_t events);
  void on_plain(std::uint32_t events);
  /// The time for its phase is over.
  void time_out();
  /// Ends it at once.
  void end() { phase_ = Phase::Over; }

 private:
  void read_tcp();
  void read_plain();
  void send_to_tcp();
  bool send_to_plain();
  void note_peer();
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
  std::string to_tcp_;    // Ciphertext that TCP has not taken yet.
  std::string to_plain_;  // Plaintext that the plain side has not taken yet.
  bool noted_peer_ = false;
  bool tcp_ended_ = false;
  bool tcp_broken_ = false;  // Nothing can be sent any more.
  bool told_end_ = false;    // TCP's own end is sent.
};

}  // namespace muster
