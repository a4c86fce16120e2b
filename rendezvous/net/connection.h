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
#include <utility>

#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/core/store_table.h"
#include "rendezvous/core/store_traffic.h"
#include "rendezvous/net/c10d_allow.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/net/log_limiter.h"
#include "rendezvous/service/run_accounts.h"
#include "rendezvous/service/run_service.h"
#include "rendezvous/tls/tls_pump.h"
#include "rendezvous/tls/tls_rules.h"
#include "rendezvous/wire/c10d_codec.h"
#include "rendezvous/wire/reply_queue.h"
#include "rendezvous/wire/token_proof.h"

namespace muster {

/// What the connections of one server share: they run one after the other.
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

  /// As table.apply(); what that changes is counted in the account of the run of the first key.
  Reply apply(ConnectionId from, const Request& request);
  /// As table.disconnect(), by a client that waits for keys of this run, if for any run's.
  void disconnect(ConnectionId client, std::string_view waits_for_run);

  /// Memory of unread replies, values that only they still hold included.
  std::size_t unread_bytes() { return queued_bytes + table.account().only_unread(); }

  CodecLimits codec;
  StoreTable table;
  StoreLimits limits;
  ConnectionLimits connections;
  C10dDoor c10d;
  RunAccounts accounts;
  std::unique_ptr<char[]> read_buffer;
  RequestScratch scratch;
  ReplyQueue replies;            // Of the connection that is being served.
  std::size_t queued_bytes = 0;  // Memory of all connections' unread replies, without values.
  StoreTraffic traffic;
  std::int64_t slice_work = 0;       // Left to the connection that is being served.
  std::int64_t turn_work = 0;        // Left to all connections in this turn of the loop.
  std::unique_ptr<RunService> runs;  // Empty if the server is only a store.
  Instant now{};                     // When the events that are being handled were taken.
  LogLimiter log;
  std::function<void(ConnectionId)> wake;  // Passes kStopWaiting to another connection.
  std::function<std::optional<Instant>(const NativeReach&)> reach;  // StoreServerOptions::reach.
  SharedHostTokens tokens;  // StoreServerOptions::token, ::run_tokens.
  std::string token_run;
  bool tls = false;          // The native door is served through TLS only.
  SharedTlsRules tls_rules;  // StoreServerOptions::tls_rules.
  /// A client of the c10d door uses the keys of one run only.
  bool runs_apart = false;
  /// Who waits for a node's answer, by the question's number.
  std::map<std::uint64_t, std::function<void(NodeAnswered)>> asked;
  /// Who waits until what an operator has asked is done, by its number.
  std::map<std::uint64_t, std::function<void(std::string)>> operated;
  std::uint64_t operations = 0;
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
    return {!paused_ && !yielded_ && !ended_ && !enough, !replies_.empty()};
  }
  Interest watched;  // What it is being watched for: the loop's note.

  void on_readable();
  void on_writable();
  /// The peer has reset the connection or closed both directions.
  void on_hang_up();
  /// Serves on after it has yielded.
  void resume();
  /// Whether requests that have been read wait for resume(): others are to be served first.
  bool yielded() const { return yielded_ && !ended_; }
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
  /// What kind of reason it is, for the log's limiter.
  std::string_view cause() const { return cause_; }
  /// Whether that was the client's mistake.
  bool violation() const { return violation_; }

  /// Nothing more is to come in time: it has said what it wants, and may have that.
  bool validated() const {
    return decoder_.validated() && !proves_token() &&
           (c10d_open_ || decoder_.native() || shared_.c10d.admits(peer_address()));
  }
  /// It has come to the native door, and has not proven yet that it has the token.
  bool proves_token() const {
    return shared_.tokens && decoder_.native() && !(gate_ && gate_->open());
  }
  /// Half a request or unread replies are there: it must move on or go.
  bool in_between() const { return !input_.empty() || !replies_.empty(); }
  bool unread_replies() const { return !replies_.empty(); }
  std::size_t unread_bytes() const { return replies_.size(); }
  /// The run that this connection is of, or null. It changes once.
  RunAccount* account() const { return account_; }
  std::size_t unread_memory() const { return replies_.empty() ? 0 : replies_.memory(); }

  /// Nothing has been read yet that could tell whether the client speaks TLS.
  bool may_begin_tls() const { return shared_.tls && transport_ == Transport::Unknown; }
  void stay_plain() { transport_ = Transport::Plain; }
  /// The socket, for TLS; then become_secure() gives the plain end of it.
  OwnedFd release_socket();
  void become_secure(TlsConnection secure);

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
  /// Closes the connection once its replies are sent. `cause` lives for ever.
  void refuse(std::string reason, std::string_view cause);
  void note_input();

  // connection_runs.cc: what is about a run's rendezvous.
  bool about_runs(const Request& request) const;
  void serve_state(const Request& request);
  void compare_set_state(const Request& request);
  bool hand_back(const Request& request);
  bool refuse_plant(const Request& request);
  void warn_of_other_use(const std::string& what) const;
  void serve_native(std::string_view json);
  void serve_gate(std::string_view json);
  void refuse_plain();
  bool enter_c10d();
  std::string refusal_of_certificate(std::string_view json) const;
  void become_member(std::string_view hello);
  bool stays_in_run(const Request& request);
  bool enter_run(std::string_view run);
  bool fits_in_run(const Request& request);
  void disconnect_store() { shared_.disconnect(id_, std::exchange(waits_for_run_, {})); }
  void serve_run_message(std::string_view json);
  void serve_reach(std::string_view json);
  void leave_runs();
  void note_wait(const Request& request);
  std::string at_offset(const std::string& reason) const;
  RunService::Time time() const;

  enum class Transport { Unknown, Plain, Secure };

  ConnectionShared& shared_;
  OwnedFd fd_;
  Transport transport_ = Transport::Unknown;
  std::shared_ptr<TlsStatus> tls_;  // Once it is secure.
  boost::asio::ip::address local_;  // With TLS: our end of the TCP connection.
  ConnectionId id_;
  boost::asio::ip::tcp::endpoint peer_;
  RequestDecoder decoder_;
  ByteBuffer input_;  // Incomplete request, and while paused what was read behind it.
  std::size_t counted_input_ = 0;
  ReplyQueue replies_;
  std::string reason_;
  std::string_view cause_;
  bool serving_ = false;
  bool paused_ = false;   // Too many replies are unread.
  bool held_ = false;     // answer() is to come first.
  bool yielded_ = false;  // Its slice of the turn is used up.
  bool in_runs_ = false;
  bool waits_ = false;               // As in_runs_ was told.
  bool c10d_open_;                   // It may use the store; not asked again.
  std::string member_of_;            // The run, as shared_.c10d was told; empty: it is none.
  RunAccount* account_ = nullptr;    // Of the run that it is of; null: of none.
  std::string waits_for_run_;        // The run whose keys it has last waited for.
  std::string run_scope_;            // The run whose keys it uses, where runs are apart.
  std::unique_ptr<TokenGate> gate_;  // From the first native message on, if there is a token.
  bool ended_ = false;               // Nothing more comes from the peer, or is wanted.
  bool broken_ = false;              // Nothing can be sent any more.
  bool done_ = false;
  bool violation_ = false;
};

}  // namespace muster
