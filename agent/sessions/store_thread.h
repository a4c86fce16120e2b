// A store server on its own thread, so that a busy store does not delay the supervision of workers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include <boost/asio/io_context.hpp>
#include <boost/system/result.hpp>

#include "rendezvous/http/http_server.h"
#include "rendezvous/server/store_server.h"

namespace muster {

class StoreThread {
 public:
  /// Starts to listen, and serves until destroyed. The port stays bound, so no other process can
  /// take it between two attempts.
  /// `on_reach` is called on the store's thread when another node asks whether its round is whole.
  static boost::system::result<std::unique_ptr<StoreThread>, ListenError> start(
      StoreServerOptions options, std::function<void(const NativeReach&)> on_reach = {});
  ~StoreThread();
  StoreThread(const StoreThread&) = delete;
  StoreThread& operator=(const StoreThread&) = delete;

  std::uint16_t port() const { return port_; }

  /// Starts an HTTP server that shows the runs of this server, and returns its URL. It serves until
  /// this object is destroyed. To be called at most once.
  boost::system::result<std::string, ListenError> serve_http(const http::HttpAddress& address,
                                                             http::HttpDoor door);

  /// Closes everything. Returns when the thread has ended.
  void stop();

  /// Removes every key and closes every connection, so that an attempt never sees keys of an
  /// earlier one. Then calls `done` on the store's thread.
  void reset(std::function<void()> done);

  /// From now on a node that asks about the round of this generation gets `whole_at`: when all
  /// nodes of the round last reached each other. Empty: unknown. For other generations the answer
  /// is "unknown".
  void set_reach_answer(std::int64_t generation, std::optional<Instant> whole_at);

  /// As StoreServer::set_run_tokens().
  void set_run_tokens(HostTokens::OfRuns tokens);

  /// As StoreServer::drain(). `done` is called on the store's thread.
  void drain(Instant deadline, std::function<void()> done);

 private:
  StoreThread() = default;
  boost::asio::io_context io_{1};
  std::unique_ptr<StoreServer> server_;
  std::uint16_t port_ = 0;
  // Used on the store's thread only.
  std::int64_t whole_generation_ = 0;
  std::optional<Instant> whole_at_;
  std::thread thread_;
  std::unique_ptr<http::HttpServer> http_;  // Uses server_ and io_: declared last, destroyed first.
};

}  // namespace muster
