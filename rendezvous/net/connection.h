// One client's socket: bytes in, requests to the table, replies out.
//
// It knows nothing of the loop: StoreServer tells it when the socket is ready, and reads from
// interest() what to be told next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/core/store_table.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/wire/c10d_codec.h"
#include "rendezvous/wire/reply_queue.h"
#include "rendezvous/wire/run_service.h"

namespace muster {

/// What the connections of one server share: they run one after the other.
struct ConnectionShared {
  static constexpr std::size_t kReadBytes = 64 << 10;

  ConnectionShared(const CodecLimits& codec_limits, StoreLimits table_limits,
                   std::size_t queued_bytes_limit)
      : codec(codec_limits),
        table(table_limits),
        limits(table_limits),
        queued_bytes(queued_bytes_limit),
        read_buffer(new char[kReadBytes]) {}

  CodecLimits codec;
  StoreTable table;
  StoreLimits limits;
  std::size_t queued_bytes;
  std::unique_ptr<char[]> read_buffer;
  RequestScratch scratch;
  ReplyQueue replies;           // Of the connection that is being served.
  std::size_t input_bytes = 0;  // Incomplete requests of all connections.
  std::uint64_t requests = 0;
  std::unique_ptr<RunService> runs;        // Nothing: a store and no more.
  Instant now{};                           // When the events that are being handled were taken.
  std::function<void(ConnectionId)> wake;  // Passes kStopWaiting to another connection.
};

class Connection {
 public:
  Connection(ConnectionShared& shared, OwnedFd fd, ConnectionId id,
             const boost::asio::ip::tcp::endpoint& peer);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  struct Interest {
    bool read = false;
    bool write = false;
    bool operator==(const Interest&) const = default;
  };
  /// What the socket should be watched for.
  Interest interest() const {
    const bool enough = held_ && input_.size() >= ConnectionShared::kReadBytes;
    return {!paused_ && !ended_ && !enough, !replies_.empty()};
  }
  Interest watched;  // What it is being watched for: the loop's note.

  void on_readable();
  void on_writable();
  /// The peer has reset the connection or closed both directions.
  void on_hang_up();
  /// Answers a wait, from within another connection's request.
  void wake();
  /// The reply of a compare-and-set that was held back; what came behind it is served, too.
  void answer(const SharedBytes& text);
  /// A message that is not a reply.
  void push(std::string_view frame);

  /// To be closed and forgotten now.
  bool done() const { return done_; }
  /// Why, if it is worth a line in the log: a limit, garbage, a client that left in the middle.
  const std::string& reason() const { return reason_; }
  /// Whether that was the client's mistake.
  bool violation() const { return violation_; }

  bool validated() const { return decoder_.validated(); }
  /// Half a request or unread replies are there: it must move on or go.
  bool in_between() const { return !input_.empty() || !replies_.empty(); }
  bool unread_replies() const { return !replies_.empty(); }

  int fd() const { return fd_.get(); }
  ConnectionId id() const { return id_; }
  std::string peer() const { return to_text(peer_); }
  boost::asio::ip::address peer_address() const { return unmapped(peer_.address()); }
  /// Ours, as the peer reaches us; unspecified if the kernel does not say.
  boost::asio::ip::address local_address() const;

 private:
  void read_into_buffer();
  void take_in(std::string_view bytes);
  std::size_t serve(std::string_view bytes, ByteBuffer* buffer);
  void serve_one(const Request& request);
  Reply apply(const Request& request);
  void send_reply(const Reply& reply);
  void serve_buffered();
  bool has_drained() const;
  ReplyQueue& out() { return replies_.empty() && serving_ ? shared_.replies : replies_; }
  void flush();
  void send_waiting();
  void send(ReplyQueue& queue);
  void end(bool by_reset);
  void refuse(std::string reason);
  void note_input();

  // connection_runs.cc: what is about a run's rendezvous.
  bool about_runs(const Request& request) const;
  void serve_state(const Request& request);
  void compare_set_state(const Request& request);
  bool hand_back(const Request& request);
  void warn_of_other_use(const std::string& what) const;
  void serve_native(std::string_view json);
  void leave_runs();
  void note_wait(const Request& request);
  std::string at_offset(const std::string& reason) const;
  RunService::Time time() const;

  ConnectionShared& shared_;
  OwnedFd fd_;
  ConnectionId id_;
  boost::asio::ip::tcp::endpoint peer_;
  RequestDecoder decoder_;
  ByteBuffer input_;  // Incomplete request, and while paused what was read behind it.
  std::size_t counted_input_ = 0;
  ReplyQueue replies_;
  std::string reason_;
  bool serving_ = false;
  bool paused_ = false;  // Too many replies are unread.
  bool held_ = false;    // answer() is to come first.
  bool in_runs_ = false;
  bool waits_ = false;   // As in_runs_ was told.
  bool ended_ = false;   // Nothing more comes from the peer, or is wanted.
  bool broken_ = false;  // Nothing can be sent any more.
  bool done_ = false;
  bool violation_ = false;
};

}  // namespace muster
