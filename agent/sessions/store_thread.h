// The workers' store, on a thread of its own: however busy it is, supervision does not wait for it.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include <boost/asio/io_context.hpp>
#include <boost/system/result.hpp>

#include "rendezvous/http/http_server.h"
#include "rendezvous/net/store_server.h"

namespace muster {

class StoreThread {
 public:
  /// Listens, and serves until it is destroyed. The port is bound from here on: no other process
  /// can take it between one attempt and the next.
  /// `on_reach` is called on the store's thread when another node asks whether its round is whole.
  static boost::system::result<std::unique_ptr<StoreThread>, ListenError> start(
      StoreServerOptions options, std::function<void(const NativeReach&)> on_reach = {});
  ~StoreThread();
  StoreThread(const StoreThread&) = delete;
  StoreThread& operator=(const StoreThread&) = delete;

  std::uint16_t port() const { return port_; }

  /// Shows what goes on in the runs of this server, until the end: the URL. At most once.
  boost::system::result<std::string, ListenError> serve_http(const http::HttpAddress& address,
                                                             http::HttpDoor door);

  /// Closes everything; returns when the thread has ended.
  void stop();

  /// Forgets every key and closes every connection, so that an attempt never sees an earlier
  /// one's; then calls `done` on the store's thread.
  void reset(std::function<void()> done);

  /// What is answered to other nodes that ask, from now on: when the round of this generation was
  /// whole; nothing: it is not known to be. No other round is.
  void vouch(std::int64_t generation, std::optional<Instant> whole_at);

  /// StoreServer::drain(); `done` is called on the store's thread.
  void drain(Instant deadline, std::function<void()> done);

 private:
  StoreThread() = default;
  boost::asio::io_context io_{1};
  std::unique_ptr<StoreServer> server_;
  std::uint16_t port_ = 0;
  // For the store's thread.
  std::int64_t whole_generation_ = 0;
  std::optional<Instant> whole_at_;
  std::thread thread_;
  std::unique_ptr<http::HttpServer> http_;  // It asks the server on its loop, and ends before both.
};

}  // namespace muster
