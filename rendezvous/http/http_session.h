// One connection of the HTTP server.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/system/log_limiter.h"
#include "rendezvous/http/answer_waiter.h"
#include "rendezvous/http/http_access.h"
#include "rendezvous/http/http_metrics.h"
#include "rendezvous/http/http_route.h"
#include "rendezvous/http/http_server.h"
#include "rendezvous/http/idle_connections.h"
#include "rendezvous/http/run_view_json.h"
#include "rendezvous/http/view_source.h"
#include "rendezvous/tls/tls_pump.h"

namespace muster::http {

/// The result of an operation.
struct Operated {
  std::string objection = {};  // Why the operation is impossible. Empty: it is done.
  std::string text = {};       // The consequences of the operation.
};
using OperatedWaiter = std::shared_ptr<AnswerWaiter<std::optional<Operated>>>;
using AnsweredWaiter = std::shared_ptr<AnswerWaiter<std::optional<NodeAnswered>>>;

/// Calls RunService::operate(). The answer is std::nullopt if the run is not known. Called on the
/// HTTP thread. `waiter` gets the answer on this thread, too, or never if the runs' loop has ended.
using Operate = std::function<void(Action action, const OperatedWaiter& waiter)>;

/// Asks a node. `waiter` gets the node's answer, an error, or std::nullopt if the run is not known.
/// Returns the number of the question. forget() must be called with this number if the answer is
/// no longer needed.
struct Ask {
  std::function<std::uint64_t(RankQuestion question, const AnsweredWaiter& waiter)> ask;
  std::function<void(std::uint64_t number)> forget;
};

/// State that all connections of one server share. Used on one thread only.
struct Shared {
  explicit Shared(HttpDoor door)
      : access(std::move(door.token)),
        tls(std::move(door.tls)),
        tls_rules(std::move(door.tls_rules)),
        server{.port = door.nodes_port} {}

  HttpAccess access;
  SharedTls tls;             // Null: plain HTTP.
  SharedTlsRules tls_rules;  // HttpDoor::tls_rules.
  LogLimiter refused_lines;
  std::shared_ptr<ViewSource> views;
  Operate operate;
  Ask questions;
  HttpFigures figures;
  IdleConnections idle;  // Without those that have proven the token.
  std::size_t streams = 0;
  /// The number of open connections that have asked for a change. Before the server ends, it gives
  /// them a short time to read the answer, because the change may be the reason for the end.
  std::size_t operator_connections = 0;
  std::function<void()> on_operators_gone;
  double began_seconds = 0;
  ServerFacts server;
  /// Whether only this machine reaches the server. Then browsers must use a loopback name.
  bool loopback_only = true;
};

/// The client of a connection.
struct HttpPeer {
  boost::asio::ip::address address;
  bool secure = false;                  // The client uses TLS, and the socket is the plain end.
  std::shared_ptr<TlsStatus> tls = {};  // Null: no TLS.
};

/// Serves requests until the client closes the connection, a limit is reached or no request comes
/// in time.
boost::asio::awaitable<void> serve_http(boost::asio::ip::tcp::socket socket,
                                        std::shared_ptr<Shared> shared, HttpPeer peer);

}  // namespace muster::http
