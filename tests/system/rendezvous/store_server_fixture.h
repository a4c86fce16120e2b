// A store server on its own thread, and clients that can send it any bytes.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <future>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include <boost/asio/post.hpp>
#include <boost/endian/conversion.hpp>
#include <catch2/catch.hpp>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "rendezvous/server/server_limits.h"
#include "rendezvous/server/store_server.h"
#include "tests/support/blocking_client.h"

namespace muster::testing {

namespace asio = boost::asio;
using asio::ip::tcp;
using namespace std::chrono_literals;

inline std::string u64(std::uint64_t number) {
  std::array<unsigned char, 8> bytes;
  boost::endian::store_little_u64(bytes.data(), number);
  return {bytes.begin(), bytes.end()};
}

inline std::string bytes_of(const Request& request) {
  std::string out;
  encode_request(request, out);
  return out;
}

inline const std::string kHello =
    bytes_of({.query = Query::Validate, .number = c10d::kValidationMagic});
inline const std::string kPing = bytes_of({.query = Query::Ping, .number = 7});
inline const std::string kPong("\x07\0\0\0", 4);

inline std::string set_of(std::string_view key, std::string_view value) {
  return bytes_of({.query = Query::Set, .key = key, .value = value});
}
inline std::string get_of(std::string_view key) {
  return bytes_of({.query = Query::Get, .key = key});
}
inline std::string wait_for(std::string_view key) {
  const std::array<std::string_view, 1> keys{key};
  return bytes_of({.query = Query::Wait, .keys = keys});
}

/// A server on its own thread, as in the agent. Keeps the log.
class RunningServer {
 private:
  template <typename Work>
  auto on_loop(Work work) {
    std::packaged_task<decltype(work())()> task(work);
    auto result = task.get_future();
    asio::post(loop_, [&task] { task(); });
    return result.get();
  }

 public:
  explicit RunningServer(StoreServerOptions options = {}) {
    auto logger = std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_));
    previous_ = spdlog::default_logger();
    spdlog::set_default_logger(logger);
    if (options.descriptors.empty() && options.addresses.empty()) options.addresses = {"127.0.0.1"};
    server_ = std::make_unique<StoreServer>(loop_, std::move(options));
    const auto started = server_->start();
    REQUIRE(started.has_value());
    port_ = server_->port();
    thread_ = std::thread([this] { loop_.run(); });
  }
  RunningServer(const RunningServer&) = delete;
  RunningServer& operator=(const RunningServer&) = delete;
  ~RunningServer() { stop(); }

  /// Stops the server. The loop must have nothing left to do. Afterwards the log is complete.
  std::string stop() {
    if (thread_.joinable()) {
      asio::post(loop_, [this] { server_->stop(); });
      thread_.join();
      spdlog::default_logger()->flush();
      spdlog::set_default_logger(previous_);
    }
    return log_.str();
  }
  std::uint16_t port() const { return port_; }
  void reset() {
    on_loop([this] {
      server_->reset();
      return 0;
    });
  }
  /// Sets these limits from now on, and defaults for all others.
  void set_time_limits(Duration validate_within, Duration stalled_after,
                       const ConnectionLimits& connections = {}) {
    on_loop([&, this] {
      server_->set_limits({.connections = connections,
                           .validate_within = validate_within,
                           .stalled_after = stalled_after});
      return 0;
    });
  }
  StoreServerStats stats() {
    return on_loop([this] { return server_->stats(); });
  }
  /// Calls `work` while the server's loop stands still.
  template <typename Work>
  void while_stopped(Work work) {
    std::promise<void> done;
    asio::post(loop_, [end = done.get_future().share()] { end.wait(); });
    work();
    done.set_value();
  }
  /// Checks until `done` returns true, for a limited time.
  template <typename Done>
  bool until(Done done) {
    for (const auto end = std::chrono::steady_clock::now() + 120s;
         std::chrono::steady_clock::now() < end; ::poll(nullptr, 0, 2))
      if (done(stats())) return true;
    return false;
  }

 private:
  std::ostringstream log_;
  std::shared_ptr<spdlog::logger> previous_;
  asio::io_context loop_{1};
  std::unique_ptr<StoreServer> server_;
  std::thread thread_;
  std::uint16_t port_ = 0;
};

class Client : public BlockingClient {
 public:
  explicit Client(std::uint16_t port, bool hello = true, const char* host = "127.0.0.1")
      : BlockingClient(port, host) {
    if (hello) send(kHello);
  }
  bool alive() { return send(kPing).receive(4) == kPong; }
  std::string name() const {
    return "127.0.0.1:" + std::to_string(socket_.local_endpoint().port());
  }
  void half_close() { socket_.shutdown(tcp::socket::shutdown_send); }
  void reset_connection() {
    socket_.set_option(asio::socket_base::linger(true, 0));
    socket_.close();
  }
};

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace muster::testing
