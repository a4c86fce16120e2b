// The store's server. TCPStore clients of PyTorch 2.4 to 2.13 cannot tell it from torch's own.
//
// It runs on one io_context(1), either alone on a thread, as in the agent, or with other work. It
// resolves no names and never blocks. docs/protocol.md lists its limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/system/result.hpp>

#include "base/net/listener.h"
#include "base/system/clock.h"
#include "base/time.h"
#include "rendezvous/access/token_proof.h"
#include "rendezvous/host/run_service.h"
#include "rendezvous/server/acceptor.h"
#include "rendezvous/server/c10d_allow.h"
#include "rendezvous/server/connection.h"
#include "rendezvous/server/connection_shared.h"
#include "rendezvous/server/deadline_list.h"
#include "rendezvous/server/event_set.h"
#include "rendezvous/server/server_limits.h"
#include "rendezvous/server/unread_ledger.h"
#include "rendezvous/store/c10d_codec.h"
#include "rendezvous/store/store_table.h"
#include "rendezvous/store/store_traffic.h"
#include "rendezvous/tls/tls_pump.h"
#include "rendezvous/tls/tls_rules.h"

namespace muster {

struct StoreServerOptions {
  std::vector<std::string> addresses = {};  // Numeric. Empty: every interface, IPv6 and IPv4.
  std::uint16_t port = 0;                   // 0: the kernel chooses.
  /// Bound sockets to use instead of `addresses` and `port`.
  std::vector<int> descriptors = {};

  CodecLimits codec = {};
  StoreLimits table = {};
  /// The time from accept to a complete VALIDATE.
  Duration validate_within = std::chrono::seconds(30);
  /// A connection with an incomplete request or unread replies is closed if no byte moves for so
  /// long.
  Duration stalled_after = std::chrono::seconds(300);
  ConnectionLimits limits = {};
  /// The limits of each run. Unused without `runs`.
  RunLimits run_limits = {};
  /// Whether a peer may connect, asked before a byte is read. Empty: every peer may.
  std::function<bool(const boost::asio::ip::address&)> admit = {};
  /// The run service. Empty if this server is only a store.
  std::optional<RunServiceOptions> runs = {};
  /// Keeps the state of the runs beyond the life of this process. Null: the state is not kept. Must
  /// live as long as the io_context.
  std::shared_ptr<RunState> state = {};
  /// At a workers' store: answers the agent of another node when the round was last known to be
  /// whole, or std::nullopt if that is not known. Empty: this store does not answer the question.
  /// Called on the server's thread.
  std::function<std::optional<Instant>(const NativeReach&)> reach = {};
  /// Which clients may use the store, and so take part in a rendezvous as torchrun does. Empty:
  /// all.
  std::optional<C10dAllow> c10d_allow = {};
  /// The native door serves only clients that prove that they have this token. Null: all clients.
  SharedTokenCrypto token = {};
  /// Only with `token`: the tokens that the nodes of these runs must have instead of `token`.
  HostTokens::OfRuns run_tokens = {};
  /// At a workers' store with a token: the run whose nodes may ask whether the round is whole.
  std::string token_run = {};
  /// Muster nodes must use TLS: a node without it is refused with that reason. Null: plain TCP.
  /// Clients of PyTorch's protocol may use TLS or plain TCP.
  SharedTls tls = {};
  /// Which runs a TLS client may join, by its certificate. Null: all of them.
  SharedTlsRules tls_rules = {};
};

/// The limits that can be changed while the server runs.
struct StoreServerLimits {
  CodecLimits codec = {};  // Only the limits. The settings of the native door do not change.
  StoreLimits table = {};
  ConnectionLimits connections = {};
  RunLimits of_a_run = {};
  Duration validate_within{};
  Duration stalled_after{};
  std::size_t runs = 0;
  Duration forget_run_after{};
};

struct StoreServerStats {
  std::size_t connections = 0;
  std::size_t waiting = 0;
  std::size_t keys = 0;
  std::size_t table_bytes = 0;
  std::size_t unread_bytes = 0;  // The memory of unread replies, as the limit counts it.
  std::uint64_t accepted = 0;
  StoreTraffic traffic;
  std::size_t runs = 0;
  std::uint64_t refused = 0;  // Connections that were closed when they connected.
  std::string state_problem;  // Why the state of the runs is not recorded. Empty: no problem.
  bool draining = false;      // drain() was called: no muster node is let in any more.
  /// The number of connections that the server closed, by reason, including the refused ones. The
  /// reasons are a fixed set of texts in this program.
  std::map<std::string_view, std::uint64_t> closed;
};

/// All members must be called on the io_context's thread, or while it does not run. The server must
/// not be destroyed by a callback that it calls itself; drain()'s comes from the loop, and may do
/// so.
class StoreServer {
 public:
  StoreServer(boost::asio::io_context& loop, StoreServerOptions options);
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  ~StoreServer();  // Calls stop().

  /// Binds and begins to accept. To be called at most once.
  boost::system::result<void, ListenError> start();
  /// The port of the first listening socket. 0 before start() and after the server has stopped.
  std::uint16_t port() const;
  /// Empty before start() and after the server has stopped. The server also stops by itself, at the
  /// first event after another process may have taken over its state.
  std::vector<boost::asio::ip::tcp::endpoint> endpoints() const;

  /// Closes every connection and empties the table, but continues to listen. Used between the
  /// attempts of a job, so that an attempt sees no key of the attempt before.
  void reset();
  /// Lets no muster node in any more. `done` is called once, from the loop, when every reply and
  /// message is sent and every torchrun node (a client that has asked for the state of a
  /// rendezvous) has left, or at `deadline`. A server that is only a store waits until all its
  /// clients have left. `done` is not called after stop(). To be called at most once.
  void drain(Instant deadline, std::function<void()> done);
  /// Closes everything. The loop has nothing more to do for this server.
  void stop();

  /// Sets new limits. Existing connections stay, even if they exceed a smaller limit.
  void set_limits(const StoreServerLimits& limits);
  /// Sets the tokens that nodes must prove from now on. A node that has proven an older token stays
  /// connected.
  void set_run_tokens(HostTokens::OfRuns tokens);
  StoreServerStats stats() const;
  /// Null if this server is only a store, or has not started. Valid until reset() or the end of the
  /// server.
  const RunService* runs() const;
  /// Calls RunService::operate() and applies its effects. If there is no objection, `done` is
  /// called once on the loop, with the consequences of the operation.
  std::optional<std::string> operate(const std::string& run_id, const OperatorAsked& asked,
                                     std::function<void(std::string text)> done);
  /// Calls RunService::ask(). If the node is asked, `done` is called once on the loop, unless
  /// forget_question() is called before. The caller chooses a new number for each question.
  std::optional<std::string> ask(const std::string& run_id, int rank, NodeAsked question,
                                 std::function<void(NodeAnswered)> done);
  void forget_question(std::uint64_t number);

 private:
  // The place of one connection. `generation` differs for each connection in the same slot, so that
  // an event for an earlier connection is recognised.
  struct Slot {
    std::unique_ptr<Connection> connection;
    std::uint32_t generation = 0;
    bool resumes = false;  // The connection is in resume_.
    UnreadEntry unread;
    DeadlineList* waits_in = nullptr;
    DeadlineList::Place deadline;
  };

  // The events of the loop.
  /// A handler of the loop, to be called with this server. It does nothing if the server has ended.
  template <typename Handler>
  auto while_alive(Handler handler) {
    return [alive = std::weak_ptr(alive_), handler = std::move(handler)](const auto&... args) {
      if (const auto server = alive.lock()) handler(**server, args...);
    };
  }
  void wait_for_events();
  void on_events(std::span<const epoll_event> events, Instant now);
  void on_event(const epoll_event& event);
  /// Calls `work` for `connection`. An exception closes this connection only. Null: no connection.
  template <typename Work>
  void guard(Connection* connection, const Work& work) {
    const std::uint64_t tag = connection == nullptr
                                  ? Acceptor::kListenerTag
                                  : tag_of(slot_of(connection->id()), connection->id());
    try {
      work();
    } catch (const std::exception& error) {
      on_failed_event(tag, error);
    }
  }
  void on_failed_event(std::uint64_t tag, const std::exception& error);
  void continue_work();
  bool has_work_left() const { return !resume_.empty() || !leaving_.empty(); }
  void resume_yielded();
  void resume_later();
  void begin_extra_turn();
  void arm_timer(Instant earliest = {});
  void arm_timer_for(std::optional<Instant> deadline);
  void on_timer();
  void handle_deadlines(Duration late);
  void read_clock() { shared_.now = now(); }

  // The connections.
  Slot& slot_of(ConnectionId id) { return slots_[id.value]; }
  Connection* connection_of(ConnectionId id) { return slot_of(id).connection.get(); }
  static std::uint64_t tag_of(const Slot& slot, ConnectionId id) {
    return std::uint64_t{slot.generation} << 32 | id.value;
  }
  Connection* connection_at(std::uint64_t tag);
  bool may_connect(const boost::asio::ip::address& peer);
  int add_connection(OwnedFd fd, const boost::asio::ip::tcp::endpoint& peer);
  bool begin_tls(Slot& slot);
  void wake(ConnectionId id);
  void update_slot(Slot& slot);
  void set_deadline(Slot& slot, DeadlineList* list);
  void enforce_unread_limits();
  void close(Slot& slot, const ConnectionEnding& ending);
  void dismiss(Slot& slot, const ConnectionEnding& ending);
  void close_for(Slot& slot, std::string_view reason) {
    close(slot, {std::string(reason), reason});
  }
  void close_all();
  void finish_leaving(std::int64_t reserved);

  // store_server_runs.cc: the run service, and the state that outlives this process.
  void begin_runs();
  void begin_state();
  bool may_serve();
  void record_runs();
  void on_recorded(const StateReport& report);
  void finish_event();
  void apply_run_effects();
  void apply_pending_effects();
  void check_drained();

  StoreServerOptions options_;
  ConnectionShared shared_;
  EventSet set_;
  EventSet::Serve serve_;
  Acceptor acceptor_;
  boost::asio::steady_timer timer_;
  std::optional<Instant> timer_at_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_slots_;
  DeadlineList unvalidated_;
  DeadlineList stalled_;
  UnreadLedger unread_;
  std::optional<Instant> drained_by_;
  std::function<void()> drained_;
  std::deque<ConnectionId> resume_;  // The connections that have yielded, in order.
  bool resume_posted_ = false;
  // Closed connections whose waits are still in the store. Their numbers are in use until then.
  std::deque<std::unique_ptr<Connection>> leaving_;
  // The loop's handlers have a weak reference: they may be called after the server has ended.
  std::shared_ptr<StoreServer*> alive_ = std::make_shared<StoreServer*>(this);
};

}  // namespace muster
