// A server with a rendezvous, on its own thread, and clients of both doors over loopback.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/endian/conversion.hpp>
#include <catch2/catch.hpp>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "base/net/guarded_loop.h"
#include "base/system/clock.h"
#include "rendezvous/messages/native_codec.h"
#include "rendezvous/server/store_server.h"
#include "tests/support/blocking_client.h"

namespace muster::testing {

namespace asio = boost::asio;
using asio::ip::tcp;

inline constexpr int kPatienceSeconds = 20;  // A limit for messages that should come at once.

class DoorServer {
 public:
  explicit DoorServer(RunServiceOptions runs = {}, StoreServerOptions options = {}) {
    previous_ = spdlog::default_logger();
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_)));
    if (options.addresses.empty()) options.addresses = {"127.0.0.1"};
    runs.muster_version = "9.9";
    // These nodes send no keep-alives. A test of the lease sets another one.
    if (runs.setup.lease == RunServiceOptions{}.setup.lease)
      runs.setup.lease = std::chrono::hours(1);
    options.runs = std::move(runs);
    server_ = std::make_unique<StoreServer>(loop_, std::move(options));
    REQUIRE(server_->start().has_value());
    port_ = server_->port();
    thread_ = std::thread([this] { run_guarded(loop_, "test"); });
  }
  DoorServer(const DoorServer&) = delete;
  DoorServer& operator=(const DoorServer&) = delete;
  ~DoorServer() {
    const std::string log = stop();
    if (std::uncaught_exceptions() > 0) std::fputs(log.c_str(), stderr);  // A test has failed.
  }

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
  template <typename Work>
  auto on_loop(Work work) {
    std::packaged_task<decltype(work(*server_))()> task([&] { return work(*server_); });
    auto result = task.get_future();
    asio::post(loop_, [&task] { task(); });
    return result.get();
  }
  StoreServerStats stats() {
    return on_loop([](StoreServer& server) { return server.stats(); });
  }
  bool until(const std::function<bool(const StoreServerStats&)>& done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(kPatienceSeconds);
    for (; std::chrono::steady_clock::now() < end; ::poll(nullptr, 0, 2))
      if (done(stats())) return true;
    return false;
  }
  std::uint16_t port() const { return port_; }

 private:
  std::ostringstream log_;
  std::shared_ptr<spdlog::logger> previous_;
  asio::io_context loop_{1};
  std::unique_ptr<StoreServer> server_;
  std::thread thread_;
  std::uint16_t port_ = 0;
};

class DoorClient : public BlockingClient {
 public:
  using BlockingClient::BlockingClient;

  void close() { socket_.close(); }
  std::string address() const { return socket_.local_endpoint().address().to_string(); }
};

/// A muster node.
class NativeNode : public DoorClient {
 public:
  using DoorClient::DoorClient;

  NativeNode& tell(const NativeRequest& request) {
    send(encode(request));
    return *this;
  }
  /// The next message that is not a NativeWaiting.
  NativeMessage next() {
    for (;;) {
      NativeMessage message = next_of_all();
      if (!std::holds_alternative<NativeWaiting>(message)) return message;
    }
  }
  NativeMessage next_of_all() {
    const std::string head = receive(kNativeLengthBytes);
    REQUIRE(head.size() == kNativeLengthBytes);
    const auto length = read_native_length(head);
    REQUIRE(length.has_value());
    auto message = decode_native_message(receive(*length));
    REQUIRE(message.has_value());
    ++received;
    return *std::move(message);
  }
  template <typename Message>
  Message next() {
    NativeMessage message = next();
    INFO("message " << message.index());
    REQUIRE(std::holds_alternative<Message>(message));
    return std::get<Message>(message);
  }
  NativeWelcome hello(const std::string& run_id = "job") {
    tell(NativeHello{kNativeProtocolVersion, "9.9", run_id});
    return next<NativeWelcome>();
  }
  void join(const std::string& name, const RunSettings& run, std::int64_t last_round = -1) {
    NodeJoined joined;
    joined.name = {name, 1, 0};
    joined.run = run;
    joined.last_round = last_round;
    tell(joined);
  }
  /// This node's place in the next round. As rank 0 it first tells the host where its store is.
  RoundComplete round(const std::string& store = "127.0.0.1") {
    NativeMessage message = next();
    if (const auto* prepare = std::get_if<PrepareStore>(&message)) {
      tell(StoreReady{{}, prepare->round, store, 29500});
      message = next();
    }
    REQUIRE(std::holds_alternative<RoundComplete>(message));
    return std::get<RoundComplete>(message);
  }

  std::size_t received = 0;
};

/// A torchrun node's connection, at the level of bytes.
class StateClient : public DoorClient {
 public:
  explicit StateClient(std::uint16_t port) : DoorClient(port) {
    send(bytes_of({.query = Query::Validate, .number = c10d::kValidationMagic}));
  }
  static std::string bytes_of(const Request& request) {
    std::string out;
    encode_request(request, out);
    return out;
  }
  StateClient& ask(const Request& request) {
    send(bytes_of(request));
    return *this;
  }
  StateClient& ask_compare_set(std::string_view key, std::string_view expected,
                               std::string_view desired) {
    return ask({.query = Query::CompareSet, .key = key, .value = desired, .expected = expected});
  }
  std::string value() {
    const std::string head = receive(8);
    REQUIRE(head.size() == 8);
    return receive(static_cast<std::size_t>(
        boost::endian::load_little_u64(reinterpret_cast<const unsigned char*>(head.data()))));
  }
};

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace muster::testing
