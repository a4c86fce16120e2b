// The HTTP server beside the two doors: shows the runs to people, dashboards and monitoring.
//
// It has its own thread and loop, so a slow browser never delays the jobs. It gets its data as
// views from the loop that serves the jobs (view_source.h). docs/operating.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/system/result.hpp>

#include "base/net/listener.h"
#include "base/time.h"
#include "rendezvous/access/token_proof.h"
#include "rendezvous/http/http_route.h"
#include "rendezvous/tls/tls_pump.h"
#include "rendezvous/tls/tls_rules.h"

namespace muster {

class StoreServer;

namespace http {

/// The limits of HTTP clients.
inline constexpr std::size_t kMaxConnections = 256;
inline constexpr std::size_t kMaxConnectionsPerAddress = 128;
/// Streams of server-sent events. Below kMaxConnectionsPerAddress: one address cannot use up its
/// places with them.
inline constexpr std::size_t kMaxStreams = 96;
inline constexpr std::size_t kMaxHeaderBytes = std::size_t{16} << 10;
inline constexpr std::size_t kMaxBodyBytes = std::size_t{4} << 10;
inline constexpr std::size_t kMaxRequestsPerConnection = 1'000;
/// The time from connecting, or from the first byte of a request, to the end of the request. Also
/// the time in which a reply must be read.
inline constexpr Duration kRequestWithin = std::chrono::seconds(10);

/// The access control of the HTTP server, and the port where the nodes meet, which the page shows.
struct HttpDoor {
  SharedTokenCrypto token = {};  // Null: no token. Then the address must be a loopback address.
  SharedTls tls = {};  // Null: no TLS. With TLS, clients without it can only use the health checks.
  SharedTlsRules tls_rules = {};  // The runs that a client may see and change. Null: all runs.
  std::uint16_t nodes_port = 0;   // 0: not known.
};

/// The source of the runs that are shown.
struct HttpSource {
  StoreServer* store = nullptr;  // Null: this musterd stands by.
  std::string standing_by = {};  // "standing by: ...", for people.
};
/// Called for each view, on the loop that has the runs. A store that it has returned must live
/// until that loop has ended or the HTTP server is destroyed.
using FindSource = std::function<HttpSource()>;

class HttpServer {
 public:
  /// Binds, and serves on its own thread until it is destroyed. `loop` is the loop of the runs. It
  /// must have stopped before this object is destroyed, and must outlive it.
  static boost::system::result<std::unique_ptr<HttpServer>, ListenError> start(
      const HttpAddress& address, HttpDoor door, boost::asio::io_context& loop,
      const FindSource& source);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();

  /// Such as "http://127.0.0.1:9400/". With TLS it begins with "https://".
  const std::string& url() const { return url_; }

 private:
  HttpServer() = default;
  class Impl;
  std::unique_ptr<Impl> impl_;
  std::string url_;
};

}  // namespace http
}  // namespace muster
