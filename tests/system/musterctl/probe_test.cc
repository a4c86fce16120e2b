// Nodes of the doctor that test each other over loopback, and strangers that connect to them.
#include "musterctl/probe.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <catch2/catch.hpp>

#include "base/net/no_throw.h"
#include "musterctl/peer_wire.h"

namespace muster::ctl::testing {

namespace asio = boost::asio;
using asio::ip::tcp;

const std::string kProbeSecret = "0123456789abcdef0123456789abcdef";

struct ProbeTest {
  ProbeTest() {
    auto listeners = listen_on({"127.0.0.1"}, 0);
    REQUIRE(listeners.has_value());
    port = listeners->front().endpoint.port();
    answer_probes(loop.get_executor(), std::move(listeners->front()), kProbeSecret, 7);
  }
  template <typename T>
  T result(asio::awaitable<T> work) {
    std::optional<T> value;
    asio::co_spawn(loop, std::move(work), [&](const std::exception_ptr&, T found) {
      value = std::move(found);
      loop.stop();
    });
    loop.restart();
    loop.run();
    REQUIRE(value);
    return *std::move(value);
  }
  Probe probe(ProbeTarget target) {
    return result(probe_peer(loop.get_executor(), std::move(target)));
  }
  ProbeTarget target() {
    return {.address = "127.0.0.1",
            .port = port,
            .secret = kProbeSecret,
            .rank = 7,
            .own_rank = 3,
            .own_address = "127.0.0.2"};
  }
  // Sends these bytes and returns the bytes that come back until the connection is closed.
  asio::awaitable<std::string> reply_to(std::string bytes) {
    tcp::socket socket(loop);
    const tcp::endpoint endpoint(asio::ip::make_address("127.0.0.1"), port);
    co_await socket.async_connect(endpoint, kNoThrow);
    co_await asio::async_write(socket, asio::buffer(bytes), kNoThrow);
    boost::system::error_code ignored;
    socket.shutdown(tcp::socket::shutdown_send, ignored);
    std::string answer;
    co_await asio::async_read(socket, asio::dynamic_buffer(answer), kNoThrow);
    co_return answer;
  }
  asio::io_context loop{1};
  std::uint16_t port = 0;
};

TEST_CASE_METHOD(ProbeTest, "probe: a working connection is measured", "[threads][musterctl]") {
  const Probe found = probe(target());
  INFO(found.error);
  CHECK(found.stage == ProbeStage::Done);
  CHECK(found.from == "127.0.0.2");
  CHECK(found.to == "127.0.0.1");
  CHECK(found.latency_ms > 0);
  CHECK(found.path_mtu > 0);
  CHECK(found.segment > 0);
}

TEST_CASE_METHOD(ProbeTest,
                 "probe: a node of another run, or with another rank, is not accepted as the peer",
                 "[threads][musterctl]") {
  ProbeTarget other_run = target();
  other_run.secret = std::string(kSecretDigits, '0');
  CHECK(probe(other_run).stage == ProbeStage::Greeting);
  ProbeTarget other_rank = target();
  other_rank.rank = 8;
  const Probe found = probe(other_rank);
  CHECK(found.stage == ProbeStage::Greeting);
  CHECK_THAT(found.error, Catch::Contains("not the doctor of this run"));
}

TEST_CASE_METHOD(ProbeTest,
                 "probe: errors for a port without a listener and for an invalid address",
                 "[threads][musterctl]") {
  ProbeTarget nobody = target();
  nobody.port = 1;
  CHECK(probe(nobody).stage == ProbeStage::Connect);
  CHECK_THAT(probe(nobody).error, Catch::Contains("refused"));
  ProbeTarget nowhere = target();
  nowhere.address = "node2; rm -rf /";
  CHECK(probe(nowhere).stage == ProbeStage::Connect);
}

TEST_CASE_METHOD(ProbeTest, "probe: strangers get no answer and do not block nodes",
                 "[threads][musterctl]") {
  for (const std::string& bytes :
       {std::string(), std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100'000, '\xff'),
        probe_greeting(std::string(kSecretDigits, 'f'), 1)})
    CHECK(result(reply_to(bytes)).empty());
  // A client that has the secret and then sends garbage gets a welcome and nothing more.
  CHECK(result(reply_to(probe_greeting(kProbeSecret, 1) + "X")).size() == kWelcomeBytes);
  CHECK(result(reply_to(probe_greeting(kProbeSecret, 1) + kData)).size() == kWelcomeBytes);
  CHECK(result(reply_to(probe_greeting(kProbeSecret, 1) + "PP")).size() ==
        kWelcomeBytes + 2 * kPongBytes);
  // Clients connect and send nothing: all places are taken until the node closes these connections.
  std::vector<tcp::socket> silent;
  const tcp::endpoint endpoint(asio::ip::make_address("127.0.0.1"), port);
  for (int i = 0; i < 3 * kMaxProbesAtOnce; ++i)
    silent.emplace_back(loop).connect(endpoint);
  CHECK(probe(target()).stage != ProbeStage::Done);
  silent.clear();
  ProbeStage reached = ProbeStage::Connect;
  for (int i = 0; i < 100 && reached != ProbeStage::Done;
       ++i)  // The node may notice only later that they are gone.
    reached = probe(target()).stage;
  CHECK(reached == ProbeStage::Done);
}

}  // namespace muster::ctl::testing
