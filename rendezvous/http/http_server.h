// HTTP beside the doors: what goes on, for people, dashboards and monitoring.
//
// A thread of its own with a loop of its own: a slow browser never delays the jobs. What it shows
// comes as views from the loop that serves the jobs (view_source.h). docs/operating.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/system/result.hpp>

#include "rendezvous/core/time.h"
#include "rendezvous/http/http_route.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/tls/tls_pump.h"
#include "rendezvous/tls/tls_rules.h"
#include "rendezvous/wire/token_proof.h"

namespace muster {

class StoreServer;

namespace http {

/// Limits on what a client of HTTP may send or hold.
inline constexpr std::size_t kMaxConnections = 256;
inline constexpr std::size_t kMaxConnectionsPerAddress = 128;
inline constexpr std::size_t kMaxStreams = 128;  // Of server-sent events.
inline constexpr std::size_t kMaxHeaderBytes = std::size_t{16} << 10;
inline constexpr std::size_t kMaxBodyBytes = std::size_t{4} << 10;
inline constexpr std::size_t kMaxRequestsPerConnection = 1'000;
/// From the first byte of a request, or from connecting, to its end; and for a reply to be read.
inline constexpr Duration kRequestWithin = std::chrono::seconds(10);

/// Whom it lets in.
struct HttpDoor {
  SharedTokenCrypto token = {};  // Null: without one; then the address must be a loopback one.
  SharedTls tls = {};  // Null: without it. With it plain clients learn only that it lives.
  SharedTlsRules tls_rules = {};  // The runs that a client sees and changes. Null: all of them.
};

/// Whose runs are shown.
struct HttpSource {
  StoreServer* store = nullptr;  // Null: this musterd stands by.
  std::string standing_by = {};  // "standing by: ...", for people.
};
/// Called for each view, on the loop that has the runs. Before the loop has ended a store that was
/// named once stays until this server is destroyed.
using FindSource = std::function<HttpSource()>;

class HttpServer {
 public:
  /// Binds, and serves from a thread of its own until it is destroyed. The runs are on `loop`,
  /// which must have stopped before this is destroyed, and outlives it.
  static boost::system::result<std::unique_ptr<HttpServer>, ListenError> start(
      const HttpAddress& address, HttpDoor door, boost::asio::io_context& loop,
      const FindSource& source);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();

  /// "http://127.0.0.1:9400/", with TLS "https://…".
  const std::string& url() const { return url_; }

 private:
  HttpServer() = default;
  class Impl;
  std::unique_ptr<Impl> impl_;
  std::string url_;
};

}  // namespace http
}  // namespace muster
