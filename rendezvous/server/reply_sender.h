// The replies and messages to one client: sends what the socket takes, and keeps the rest.
#pragma once

#include <cstddef>
#include <string_view>

#include "rendezvous/server/client_socket.h"
#include "rendezvous/server/connection_shared.h"
#include "rendezvous/store/reply_queue.h"

namespace muster {

class ReplySender {
 public:
  /// Both must outlive the sender.
  ReplySender(ConnectionShared& shared, ClientSocket& socket) : shared_(shared), socket_(socket) {}

  /// Between begin_serving() and end_serving(), replies are collected in a queue that all
  /// connections share, unless earlier replies are unread.
  void begin_serving() { serving_ = true; }
  void end_serving() { serving_ = false; }
  /// Where the next reply must be added.
  ReplyQueue& next() { return unread_.empty() && serving_ ? shared_.replies : unread_; }
  /// Sends what next() has, as far as the socket takes it.
  void send_next() { send(next()); }
  /// Sends the replies to the requests that were just served. The rest becomes unread.
  void flush();
  /// Sends unread replies.
  void send_unread() { send(unread_); }
  /// Sends one byte after all unread replies. Called while another connection is served.
  void send_byte(std::uint8_t byte);

  bool has_unread() const { return !unread_.empty(); }
  std::size_t unread_bytes() const { return unread_.size(); }
  std::size_t unread_memory() const { return unread_.empty() ? 0 : unread_.memory(); }
  ReplyQueue& unread() { return unread_; }
  /// Nothing can be sent any more: the peer has reset the connection.
  bool broken() const { return broken_; }

 private:
  void send(ReplyQueue& queue);

  ConnectionShared& shared_;
  ClientSocket& socket_;
  ReplyQueue unread_;
  bool serving_ = false;
  bool broken_ = false;
};

}  // namespace muster
