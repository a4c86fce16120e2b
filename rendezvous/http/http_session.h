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

#include "rendezvous/http/http_access.h"
#include "rendezvous/http/http_metrics.h"
#include "rendezvous/http/http_route.h"
#include "rendezvous/http/http_server.h"
#include "rendezvous/http/view_source.h"
#include "rendezvous/net/log_limiter.h"
#include "rendezvous/tls/tls_pump.h"

namespace muster::http {

struct Operated {
  std::string objection = {};  // Why it cannot be; empty: it is done.
  std::string text = {};       // What follows from it.
};
/// Answers as RunService::operate() does: nothing if the run is not known. Called on the HTTP
/// thread; `done` is called there, too, or never if the runs' loop has ended.
using Operate =
    std::function<void(Action action, std::function<void(std::optional<Operated> answer)> done)>;

/// Asks a node. `done` is called once: nothing if the run is not known, an objection, or its
/// answer. The number of the question is returned: forget() it if nobody waits any more.
struct Ask {
  using Done = std::function<void(std::optional<NodeAnswered> answer)>;
  std::function<std::uint64_t(RankQuestion question, Done done)> ask;
  std::function<void(std::uint64_t number)> forget;
};

/// What the connections of one server share; all on one thread.
struct Shared {
  explicit Shared(HttpDoor door)
      : access(std::move(door.token)),
        tls(std::move(door.tls)),
        tls_rules(std::move(door.tls_rules)) {}

  HttpAccess access;
  SharedTls tls;             // Null: plain HTTP.
  SharedTlsRules tls_rules;  // HttpDoor::tls_rules.
  LogLimiter refused_lines;
  std::shared_ptr<ViewSource> views;
  Operate operate;
  Ask questions;
  HttpFigures figures;
  std::size_t streams = 0;
  /// Connections by which changes were asked for. At the end they have a moment to hear the answer:
  /// the change may be what ends this server.
  std::size_t acting = 0;
  std::function<void()> when_none_acts;
  double began_seconds = 0;
  /// Only this machine reaches it: browsers must name it so.
  bool loopback_only = true;
};

/// Who is at the other end of a connection.
struct HttpPeer {
  boost::asio::ip::address address;
  bool secure = false;                  // It speaks TLS, and the socket is the plain end of that.
  std::shared_ptr<TlsStatus> tls = {};  // Of that; null: it speaks none.
};

/// Serves requests until the client closes, a limit is reached or nothing comes in time.
boost::asio::awaitable<void> serve_http(boost::asio::ip::tcp::socket socket,
                                        std::shared_ptr<Shared> shared, HttpPeer peer);

}  // namespace muster::http
