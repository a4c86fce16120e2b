// The socket of one client: reads requests, passes them to the table, and sends the replies.
//
// A connection does not use the loop. StoreServer calls it when the socket is ready, and reads
// interest() to see which events the connection needs next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/ip/tcp.hpp>

#include "base/net/listener.h"
#include "base/system/log_limiter.h"
#include "rendezvous/access/token_proof.h"
#include "rendezvous/host/run_service.h"
#include "rendezvous/server/c10d_allow.h"
#include "rendezvous/server/run_accounts.h"
#include "rendezvous/store/c10d_codec.h"
#include "rendezvous/store/reply_queue.h"
#include "rendezvous/store/store_table.h"
#include "rendezvous/store/store_traffic.h"
#include "rendezvous/tls/tls_pump.h"
#include "rendezvous/tls/tls_rules.h"

namespace muster {

/// State that all connections of one server share. No lock is needed: connections are served one
/// after the other.
struct ConnectionShared {
  static constexpr std::size_t kReadBytes = 64 << 10;

  ConnectionShared(const CodecLimits& codec_limits, StoreLimits table_limits,
                   const ConnectionLimits& connection_limits, const RunLimits& run_limits,
                   C10dDoor c10d_door)
      : codec(codec_limits),
        table(table_limits),
        limits(table_limits),
        connections(connection_limits),
        c10d(std::move(c10d_door)),
        accounts(run_limits),
        read_buffer(new char[kReadBytes]) {}

  /// Does the same as table.apply(), and counts the change in the account of the run that the
  /// request's first key belongs to.
  Reply apply(ConnectionId from, const Request& request);
  /// Do the same as table.abandon() and table.disconnect(). `waits_for_run`: the run whose keys the
  /// client waits for. Empty: it waits for no run's keys.
  void abandon(ConnectionId client, std::string_view waits_for_run);
  void disconnect(ConnectionId client, std::string_view waits_for_run);
  /// Deletes the keys below `prefix` that `wanted` accepts, and counts that for `run`.
  void delete_below(std::string_view prefix, std::string_view run,
                    const std::function<bool(std::string_view)>& wanted);

  /// The memory of unread replies, including values that only these replies still hold.
  std::size_t unread_bytes() const { return queued_bytes + table.account().only_unread(); }

  /// Calls `change`, and counts in the account of `run` what it changes in the store.
  template <typename Change>
  void count(std::string_view run, const Change& change);

  CodecLimits codec;
  StoreTable table;
  StoreLimits limits;
  ConnectionLimits connections;
  C10dDoor c10d;
  RunAccounts accounts;
  std::unique_ptr<char[]> read_buffer;
  RequestScratch scratch;
  ReplyQueue replies;            // The replies to the connection that is being served.
  std::size_t queued_bytes = 0;  // Memory of all connections' unread replies, without values.
  StoreTraffic traffic;
  std::int64_t slice_work = 0;       // The work that the connection being served may still do.
  std::int64_t turn_work = 0;        // The work left for all connections in this turn of the loop.
  std::unique_ptr<RunService> runs;  // Null if the server is only a store.
  Instant now{};                     // When the events that are being handled were read.
  LogLimiter log;
  std::function<void(ConnectionId)> wake;  // Sends kStopWaiting to another connection.
  std::function<std::optional<Instant>(const NativeReach&)> reach;  // StoreServerOptions::reach.
  SharedHostTokens tokens;  // StoreServerOptions::token, ::run_tokens.
  std::string token_run;
  bool tls = false;          // The native door is served over TLS only.
  SharedTlsRules tls_rules;  // StoreServerOptions::tls_rules.
  /// Whether a client of the c10d door may use the keys of one run only.
  bool runs_apart = false;
  /// The callers that wait for a node's answer, by the number of the question.
  std::map<std::uint64_t, std::function<void(NodeAnswered)>> question_callbacks;
  /// The callers that wait until an operation of an operator is done, by its number.
  std::map<std::uint64_t, std::function<void(std::string)>> operation_callbacks;
  std::uint64_t operations = 0;
  /// The last message to a node that other nodes may get, too, and its encoding.
  NativeMessage last_message;
  std::string last_frame;
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
  /// The events that the socket must be watched for.
  Interest interest() const {
    const bool enough = held_ && input_.size() >= ConnectionShared::kReadBytes;
    return {!paused_ && !yielded_ && !ended_ && !enough, !replies_.empty()};
  }
  Interest watched;  // The events that the socket is watched for now. Kept by StoreServer.

  void on_readable();
  void on_writable();
  /// The peer has reset the connection or closed both directions.
  void on_hang_up();
  /// Continues to serve requests after the connection has yielded.
  void resume();
  /// Whether requests that have been read wait for resume(), because other connections must be
  /// served first.
  bool yielded() const { return yielded_ && !ended_; }
  /// Answers this client's wait. Called while a request of another connection is served.
  void wake();
  /// Sends the reply to a compare-and-set that was held back, and serves the requests after it.
  void answer(const SharedBytes& text);
  /// Sends a message that is not a reply.
  void push(std::string_view frame);

  /// Whether the server must close and forget the connection now.
  bool done() const { return done_; }
  /// Why the connection ended, for the log: a limit, invalid data, or a client that left in the
  /// middle of a request. Empty: no log line.
  const std::string& reason() const { return reason_; }
  /// The kind of reason, for the log's limiter.
  std::string_view cause() const { return cause_; }
  /// Whether the client has broken the protocol or a limit.
  bool violation() const { return violation_; }

  /// Whether the client has completed its greeting and may use the door that it has chosen. Until
  /// then the validate timeout applies.
  bool validated() const {
    return decoder_.validated() && !owes_token_proof() &&
           (c10d_open_ || decoder_.native() || shared_.c10d.admits(peer_address()));
  }
  /// Whether the client uses the native door and has not proven yet that it has the token.
  bool owes_token_proof() const {
    return shared_.tokens && decoder_.native() && !(gate_ && gate_->open());
  }
  /// Whether there is an incomplete request or an unread reply. Then the stall timeout applies.
  bool has_unfinished_io() const { return !input_.empty() || !replies_.empty(); }
  bool unread_replies() const { return !replies_.empty(); }
  std::size_t unread_bytes() const { return replies_.size(); }
  /// The account of the run that this connection belongs to, or null. It changes at most once.
  RunAccount* account() const { return account_; }
  std::size_t unread_memory() const { return replies_.empty() ? 0 : replies_.memory(); }

  /// Whether the server must still find out if the client speaks TLS: nothing has been read yet.
  bool may_begin_tls() const { return shared_.tls && transport_ == Transport::Unknown; }
  void stay_plain() { transport_ = Transport::Plain; }
  /// Gives the socket to the caller, who adds TLS. become_secure() then gives back the plain end.
  OwnedFd release_socket();
  void become_secure(TlsConnection secure);

  /// Leaves its runs and closes the socket. Only its wait in the store is left, until it is
  /// destroyed.
  void leave();
  /// The work that its destructor has to do, in the units of kSliceWork.
  std::int64_t work_left() const;

  int fd() const { return fd_.get(); }
  ConnectionId id() const { return id_; }
  std::string peer() const { return to_text(peer_); }
  boost::asio::ip::address peer_address() const { return unmapped(peer_.address()); }
  /// The server's own address, as the peer reaches it. Unspecified if the kernel does not know it.
  boost::asio::ip::address local_address() const { return unmapped(local_endpoint().address()); }

 private:
  boost::asio::ip::tcp::endpoint local_endpoint() const;
  void read_into_buffer();
  void feed(std::string_view bytes);
  std::size_t serve(std::string_view bytes, ByteBuffer* buffer);
  bool has_room_for_replies();
  void serve_one(const Request& request);
  void serve_in_slice(std::string_view bytes, ByteBuffer* buffer);
  bool must_yield() const;
  std::int64_t list_work() const;
  std::uint64_t work_so_far();
  bool may_build(std::size_t reply_bytes);
  Reply apply(const Request& request);
  void send_reply(const Reply& reply);
  void serve_buffered();
  bool has_drained() const;
  ReplyQueue& out() { return replies_.empty() && serving_ ? shared_.replies : replies_; }
  void flush();
  void send_waiting();
  void send(ReplyQueue& queue);
  void end(bool by_reset);
  /// Closes the connection after its replies are sent. `cause` has static lifetime.
  void refuse(std::string reason, std::string_view cause);
  void count_input();

  // connection_runs.cc: requests that concern the rendezvous of a run.
  bool about_runs(const Request& request) const;
  void serve_state(const Request& request);
  void compare_set_state(const Request& request);
  bool return_key_to_store(const Request& request);
  bool refuse_plant(const Request& request);
  void warn_of_other_use(const std::string& what) const;
  void serve_native(std::string_view json);
  void serve_gate(std::string_view json);
  void refuse_plain();
  bool enter_c10d();
  std::string refusal_of_certificate(std::string_view json) const;
  void become_member(std::string_view hello);
  bool stays_in_run(const Request& request);
  void list_keys_of_run();
  bool enter_run(std::string_view run);
  bool fits_in_run(const Request& request);
  void abandon_store() { shared_.abandon(id_, waits_for_run_); }
  void disconnect_store() { shared_.disconnect(id_, std::exchange(waits_for_run_, {})); }
  void serve_run_message(std::string_view json);
  void serve_reach(std::string_view json);
  void leave_runs();
  void report_wait(const Request& request);
  std::string at_offset(const std::string& reason) const;
  RunService::Time time() const;

  enum class Transport { Unknown, Plain, Secure };

  ConnectionShared& shared_;
  OwnedFd fd_;
  Transport transport_ = Transport::Unknown;
  std::shared_ptr<TlsStatus> tls_;        // Null until the connection uses TLS.
  boost::asio::ip::tcp::endpoint local_;  // With TLS: the server's address of the TCP connection.
  ConnectionId id_;
  boost::asio::ip::tcp::endpoint peer_;
  RequestDecoder decoder_;
  ByteBuffer input_;  // An incomplete request. While paused, also the bytes read after it.
  std::size_t counted_input_ = 0;
  ReplyQueue replies_;
  std::string reason_;
  std::string_view cause_;
  bool serving_ = false;
  bool paused_ = false;    // Too many replies are unread.
  bool held_ = false;      // A reply is held back: answer() must come before the next request.
  bool yielded_ = false;   // Its slice of the turn is used up.
  bool in_runs_ = false;   // The run service knows this client.
  bool waits_ = false;     // Whether the client waits, as last reported to the run service.
  bool c10d_open_;         // The client may use the store. Once true, it stays so.
  std::string member_of_;  // The run that shared_.c10d counts it as a member of, or empty.
  RunAccount* account_ = nullptr;    // The account of its run. Null: it belongs to no run.
  std::string waits_for_run_;        // The run whose keys it has last waited for.
  std::string run_scope_;            // With runs_apart: the only run whose keys it may use.
  std::unique_ptr<TokenGate> gate_;  // With a token: exists from the first native message on.
  bool ended_ = false;   // The peer sends nothing more, or nothing more is read from it.
  bool broken_ = false;  // Nothing can be sent any more.
  bool done_ = false;
  bool violation_ = false;
};

}  // namespace muster
