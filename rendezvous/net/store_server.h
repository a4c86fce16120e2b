// The store as a server: PyTorch's TCPStore clients (2.4 to 2.13) cannot tell it from torch's own.
//
// Runs on one io_context(1): alone on a thread of its own, as in the agent, or beside other things.
// It resolves no names and never blocks. What it promises to bad clients: docs/protocol.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/result.hpp>

#include "rendezvous/core/store_table.h"
#include "rendezvous/core/store_traffic.h"
#include "rendezvous/core/time.h"
#include "rendezvous/net/c10d_allow.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/service/run_service.h"
#include "rendezvous/tls/tls_pump.h"
#include "rendezvous/tls/tls_rules.h"
#include "rendezvous/wire/c10d_codec.h"
#include "rendezvous/wire/token_proof.h"

namespace muster {

struct StoreServerOptions {
  std::vector<std::string> addresses = {};  // Numeric; none: every interface, IPv6 and IPv4.
  std::uint16_t port = 0;                   // 0: the kernel chooses.
  std::vector<int> descriptors = {};  // Bound sockets to take over; then the two above are unused.

  CodecLimits codec = {};
  StoreLimits table = {};
  /// From accept to a complete VALIDATE.
  Duration validate_within = std::chrono::seconds(30);
  /// Half a request, or replies that nobody reads, without a byte moving for so long: closed.
  Duration stalled_after = std::chrono::seconds(300);
  ConnectionLimits limits = {};
  /// Of each run, where there are runs.
  RunLimits run_limits = {};
  /// Whether a peer may connect, asked before a byte is read; empty: anyone.
  std::function<bool(const boost::asio::ip::address&)> admit = {};
  /// Whose rendezvous is here; nothing: a store and no more.
  std::optional<RunServiceOptions> runs = {};
  /// Keeps what is known of the runs; empty: only this process does. Of the same life as the
  /// io_context.
  std::shared_ptr<RunState> state = {};
  /// A store of workers: answers another node's agent when its round was whole; nothing: it is not
  /// known to be. Empty: nobody asks. Called on the server's thread.
  std::function<std::optional<Instant>(const NativeReach&)> reach = {};
  /// Who may use the store, and so take part in a rendezvous as torchrun does. Nothing: everybody.
  std::optional<C10dAllow> c10d_allow = {};
  /// The native door serves only clients that prove that they have it. Null: everybody.
  SharedTokenCrypto token = {};
  /// Only with `token`: what the nodes of these runs must have in its place.
  HostTokens::OfRuns run_tokens = {};
  /// Of a store of workers with a token: the run whose nodes may ask whether it is whole.
  std::string token_run = {};
  /// Muster nodes come by TLS, and are told so if they do not. Null: plain TCP. PyTorch's own
  /// protocol may come either way.
  SharedTls tls = {};
  /// Which runs a TLS client may join, by its certificate. Null: all of them.
  SharedTlsRules tls_rules = {};
};

/// What can be changed while the server serves.
struct StoreServerLimits {
  CodecLimits codec = {};  // Its limits; how the native door is set up stays.
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
  std::size_t unread_bytes = 0;  // Memory of unread replies.
  std::uint64_t accepted = 0;
  StoreTraffic traffic;
  std::size_t runs = 0;
  std::uint64_t refused = 0;  // Closed when they connected.
  std::string state_problem;  // Why the state of the runs is not recorded. Empty: it is.
  bool draining = false;      // drain() was called: no muster node is let in any more.
  /// Connections that the server closed, by reason, the refused ones included. The reasons are a
  /// few texts of this program.
  std::map<std::string_view, std::uint64_t> closed;
};

/// All members are to be called on the io_context's thread, or while it does not run.
class StoreServer {
 public:
  StoreServer(boost::asio::io_context& loop, StoreServerOptions options);
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  ~StoreServer();  // stop()

  /// Binds and begins to accept. At most once.
  boost::system::result<void, ListenError> start();
  /// Of the first listening socket; 0 before start().
  std::uint16_t port() const;
  std::vector<boost::asio::ip::tcp::endpoint> endpoints() const;

  /// Closes every connection and empties the table; goes on listening. Between the attempts of a
  /// job: no key of the last one is seen by the next.
  void reset();
  /// Lets no muster node in any more. `done` is called once, from the loop, when every reply and
  /// message is sent and every torchrun node (who has ever asked for a rendezvous' state) has left,
  /// or at `deadline`; not after stop(). At most once.
  void drain(Instant deadline, std::function<void()> done);
  /// Closes everything. The loop has nothing more to do for this server.
  void stop();

  /// From now on these hold. Nobody is closed for what was within the limits before.
  void set_limits(const StoreServerLimits& limits);
  /// From now on nodes that come are asked for these. Who has proven another one before stays.
  void set_run_tokens(HostTokens::OfRuns tokens);
  StoreServerStats stats() const;
  /// Null if this server is only a store, or has not started. Until reset() or the end.
  const RunService* runs() const;
  /// As RunService::operate(), and its effects are carried out. If there is no objection, `done`
  /// is called once on the loop, with what follows from it.
  std::optional<std::string> operate(const std::string& run_id, const OperatorAsked& asked,
                                     std::function<void(std::string text)> done);
  /// As RunService::ask(). If the node is asked, `done` is called once on the loop, unless
  /// forget_question() comes before. The caller chooses the question's number, a new one each time.
  std::optional<std::string> ask(const std::string& run_id, int rank, NodeAsked question,
                                 std::function<void(NodeAnswered)> done);
  void forget_question(std::uint64_t number);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace muster
