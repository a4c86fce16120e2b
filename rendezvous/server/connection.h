// The connection of one client: reads requests, passes them to the door that the client has chosen,
// and sends the replies.
//
// A connection does not use the loop. StoreServer calls it when the socket is ready, and reads
// interest() to see which events the connection needs next.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/server/client_runs.h"
#include "rendezvous/server/client_socket.h"
#include "rendezvous/server/connection_shared.h"
#include "rendezvous/server/native_door.h"
#include "rendezvous/server/received_bytes.h"
#include "rendezvous/server/reply_sender.h"
#include "rendezvous/server/store_door.h"
#include "rendezvous/store/c10d_codec.h"

namespace muster {

/// Why a connection ends: a limit, invalid data, or a client that left in the middle of a request.
struct ConnectionEnding {
  std::string reason = {};      // For the log. Empty: no log line.
  std::string_view cause = {};  // The kind of reason, for the log's limiter. Has static lifetime.
  bool violation = true;        // The client has broken the protocol or a limit.
};

class Connection {
 public:
  Connection(ConnectionShared& shared, OwnedFd fd, ConnectionId id,
             const boost::asio::ip::tcp::endpoint& peer);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  struct Interest {
    bool read = false;
    bool write = false;
    bool operator==(const Interest&) const = default;
  };
  /// The events that the socket must be watched for.
  Interest interest() const { return {may_read(), replies_.has_unread()}; }
  Interest watched;  // The events that the socket is watched for now. Kept by StoreServer.

  void on_readable();
  void on_writable();
  /// The peer has reset the connection or closed both directions.
  void on_hang_up();
  /// Continues to serve requests after the connection has yielded.
  void resume();
  /// Whether requests that have been read wait for resume(), because other connections must be
  /// served first.
  bool yielded() const { return phase_ == Phase::Yielded; }
  /// Answers this client's wait. Called while a request of another connection is served.
  void wake() { replies_.send_byte(kStopWaiting.value); }
  /// Sends the reply to a compare-and-set that was held back, and serves the requests after it.
  void answer(const SharedBytes& text);
  /// Sends a message that is not a reply.
  void push(std::string_view frame);

  /// Whether the server must close and forget the connection now.
  bool done() const { return phase_ == Phase::Done; }
  /// Why; without a reason if the client has just left.
  ConnectionEnding ending() const {
    return ending_ ? *ending_ : ConnectionEnding{.violation = false};
  }

  /// Whether the client has completed its greeting and may use the door that it has chosen. Until
  /// then the validate timeout applies.
  bool validated() const {
    return decoder_.validated() && !owes_token_proof() &&
           (store_.is_open() || decoder_.native() || shared_.c10d.admits(socket_.peer_address()));
  }
  /// Whether the client uses the native door and has not proven yet that it has the token.
  bool owes_token_proof() const {
    return shared_.tokens && decoder_.native() && !(native_ && native_->has_proof());
  }
  /// Whether there is an incomplete request or an unread reply. Then the stall timeout applies.
  bool has_unfinished_io() const { return !input_.empty() || replies_.has_unread(); }
  bool has_unread_replies() const { return replies_.has_unread(); }
  std::size_t unread_bytes() const { return replies_.unread_bytes(); }
  std::size_t unread_memory() const { return replies_.unread_memory(); }

  /// Whether the server must still find out if the client speaks TLS.
  bool may_begin_tls() const { return shared_.tls && socket_.is_undecided(); }

  /// Leaves its runs and closes the socket. Only its wait in the store is left, until it is
  /// destroyed.
  void leave();
  /// The work that its destructor has to do, in the units of WorkBudget.
  std::int64_t work_left() const;

  ConnectionId id() const { return id_; }
  ClientSocket& socket() { return socket_; }
  const ClientSocket& socket() const { return socket_; }
  std::string peer() const { return to_text(socket_.peer()); }

  // What the doors use while they serve a request of this client.
  ConnectionShared& shared() const { return shared_; }
  ClientRuns& runs() { return runs_; }
  const ClientRuns& runs() const { return runs_; }
  /// Where the door adds its reply.
  ReplyQueue& out() { return replies_.next(); }
  /// The reply comes later: answer() must come before the next request is served.
  void hold() { phase_ = Phase::Held; }
  /// Closes the connection after its replies are sent. `cause` has static lifetime.
  void refuse(std::string reason, std::string_view cause);
  /// Does the same. The reason names the place of the request.
  void refuse_request(const std::string& reason, std::string_view cause) {
    refuse(at_offset(reason), cause);
  }
  /// Does the same to a client that has broken no rule: the log has it as information only.
  void turn_away(const std::string& reason, std::string_view cause);
  std::string at_offset(const std::string& reason) const;

 private:
  /// What happens to the next request.
  enum class Phase : std::uint8_t {
    Serving,  // It is served when it has come.
    Paused,   // Too many replies are unread: nothing is read until half of them are sent.
    Held,     // The reply to the last request is held back.
    Yielded,  // The slice of the turn is used up.
    Ending,   // The peer sends nothing more, or nothing more is read from it.
    Done,
  };

  bool may_read() const {
    return phase_ == Phase::Serving ||
           (phase_ == Phase::Held && input_.size() < ConnectionShared::kReadBytes);
  }
  bool has_ended() const { return phase_ == Phase::Ending || phase_ == Phase::Done; }
  void read_into_buffer();
  bool has_arrived(ssize_t got);
  void feed(std::string_view bytes);
  void serve_input();
  std::size_t serve(std::string_view bytes, ByteBuffer* buffer);
  void end_serving();
  bool has_room_for_replies();
  void serve_in_slice(std::string_view bytes, ByteBuffer* buffer);
  bool must_yield() const;
  std::int64_t list_work() const;
  std::uint64_t work_so_far() const;
  void serve_buffered();
  bool has_drained() const;
  void flush();
  void finish_if_sent();
  void begin_ending();
  void end_because(ConnectionEnding ending);
  void end(bool by_reset);
  void count_input();

  ConnectionShared& shared_;
  ConnectionId id_;
  Phase phase_ = Phase::Serving;
  ClientSocket socket_;
  RequestDecoder decoder_;
  ReceivedBytes input_;  // An incomplete request. Unless Serving, also the bytes read after it.
  ReplySender replies_;
  ClientRuns runs_;
  StoreDoor store_;
  std::unique_ptr<NativeDoor> native_;        // Null until the first native message.
  std::unique_ptr<ConnectionEnding> ending_;  // Null: there is no reason to tell.
};

}  // namespace muster
