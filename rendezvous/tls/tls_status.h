// The properties of a TLS connection that its plain side can read.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/tls/tls_engine.h"

namespace muster {

/// May be used on any thread.
class TlsStatus {
 public:
  explicit TlsStatus(int tcp_fd) : tcp_fd_(tcp_fd) {}

  /// Set before the plain side sees the end of the connection.
  TlsFailure failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  /// See TlsEngine::peer_names(). Set before the plain side sees the first byte.
  std::vector<std::string> peer_names() const {
    const std::lock_guard lock(mutex_);
    return peer_names_;
  }
  /// Whether the peer has sent anything: it has begun the handshake.
  bool has_received() const { return received_.load(std::memory_order_relaxed); }
  /// Ends the connection if data sent over TCP is not acknowledged for so long.
  void set_lost_after(std::chrono::milliseconds time) {
    const auto ms = static_cast<unsigned>(time.count());
    const std::lock_guard lock(mutex_);
    if (tcp_fd_ >= 0) ::setsockopt(tcp_fd_, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
  }

  // Called by the pump.
  void note_received() { received_.store(true, std::memory_order_relaxed); }
  void set_failure(TlsFailure failure) {
    const std::lock_guard lock(mutex_);
    if (failure_.kind == TlsFailure::Kind::None) failure_ = std::move(failure);
  }
  void set_peer_names(std::vector<std::string> names) {
    const std::lock_guard lock(mutex_);
    peer_names_ = std::move(names);
  }
  void forget_tcp() {
    const std::lock_guard lock(mutex_);
    tcp_fd_ = -1;
  }

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> received_{false};
  TlsFailure failure_;
  std::vector<std::string> peer_names_;
  int tcp_fd_;  // -1: closed.
};

}  // namespace muster
