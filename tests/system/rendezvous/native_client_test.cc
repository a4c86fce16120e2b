// A muster node and hosts of other versions, over loopback: the node goes on, or says what differs.

#include "rendezvous/node/native_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <exception>
#include <string>
#include <thread>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/endian/conversion.hpp>
#include <catch2/catch.hpp>

#include "rendezvous/messages/native_codec.h"

namespace muster::testing {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using namespace std::chrono_literals;

constexpr int kPatienceSeconds = 20;
constexpr std::size_t kQueryAndNumber = 5;  // VALIDATE and its magic, PING and its nonce.

std::string frame(const std::string& json) {
  std::array<unsigned char, kNativeLengthBytes> length;
  boost::endian::store_little_u64(length.data(), json.size());
  return std::string(length.begin(), length.end()) + json;
}

/// Accepts one connection and answers its hello with these frames.
class OtherHost {
 public:
  explicit OtherHost(std::string answer)
      : acceptor_(loop_, {asio::ip::make_address("127.0.0.1"), 0}),
        port_(acceptor_.local_endpoint().port()),
        answer_(std::move(answer)),
        thread_([this] { serve(); }) {}
  OtherHost(const OtherHost&) = delete;
  OtherHost& operator=(const OtherHost&) = delete;
  ~OtherHost() {
    if (thread_.joinable()) thread_.join();
  }

  std::uint16_t port() const { return port_; }
  /// The JSON of the client's hello. The client must have closed the connection.
  const std::string& hello() {
    thread_.join();
    return hello_;
  }

 private:
  static std::string receive(tcp::socket& from, std::size_t size) {
    std::string bytes(size, '\0');
    std::size_t got = 0;
    while (got < size) {
      const ssize_t part = ::recv(from.native_handle(), bytes.data() + got, size - got, 0);
      if (part <= 0) break;
      got += static_cast<std::size_t>(part);
    }
    bytes.resize(got);
    return bytes;
  }
  void serve() {
    pollfd comes{acceptor_.native_handle(), POLLIN, 0};
    if (::poll(&comes, 1, 1000 * kPatienceSeconds) != 1) return;
    tcp::socket client = acceptor_.accept();
    const timeval patience{kPatienceSeconds, 0};
    ::setsockopt(client.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    receive(client, kQueryAndNumber);
    const std::string nonce = receive(client, kQueryAndNumber).substr(1);
    asio::write(client, asio::buffer(nonce));
    const std::string head = receive(client, 1 + kNativeLengthBytes);
    const auto length = read_native_length(std::string_view(head).substr(1));
    if (length) hello_ = receive(client, *length);
    asio::write(client, asio::buffer(answer_));
    receive(client, 1);  // Waits until the client closes.
  }

  asio::io_context loop_;
  tcp::acceptor acceptor_;
  std::uint16_t port_;
  std::string answer_;
  std::string hello_;
  std::thread thread_;
};

struct Outcome {
  HostKind kind = HostKind::Other;
  std::string refusal;
  NativeWelcome welcome;
  std::string hello;
  std::string told;  // The first message after the welcome.
};

asio::awaitable<void> connect(NativeClient& client, Outcome& outcome) {
  const Result<HostKind> kind = co_await client.connect();
  REQUIRE(kind.has_value());
  outcome.kind = *kind;
  outcome.refusal = client.refusal();
  outcome.welcome = client.welcome();
}

/// Connects a client whose hello gets `answer`, and returns the outcome. With `then`, the client
/// goes on and gets that message.
Outcome answered_with(const std::string& answer, const std::string& then = {}) {
  Outcome outcome;
  OtherHost host(frame(answer) + (then.empty() ? std::string() : frame(then)));
  {
    asio::io_context loop{1};
    NativeClient client(
        loop.get_executor(),
        {.host = "127.0.0.1", .port = host.port(), .run_id = "job", .connect_timeout = 20s});
    std::exception_ptr failure;
    bool done = false;
    asio::co_spawn(loop, connect(client, outcome), [&](const std::exception_ptr& error) {
      failure = error;
      done = true;
    });
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(kPatienceSeconds);
    const auto until = [&](const bool& condition) {
      loop.restart();  // The loop may have run out of work before.
      while (!condition && std::chrono::steady_clock::now() < end)
        loop.run_one_for(1s);
      REQUIRE(condition);
    };
    until(done);
    if (failure) std::rethrow_exception(failure);
    bool told = then.empty();
    if (!told)
      client.start({.on_message =
                        [&](const NativeMessage& message) {
                          if (const auto* waiting = std::get_if<NativeWaiting>(&message))
                            outcome.told = waiting->text;
                          told = true;
                        },
                    .on_lost =
                        [&](const std::string& reason) {
                          outcome.told = "lost: " + reason;
                          told = true;
                        }});
    until(told);
    client.close();
    loop.restart();
    while (loop.run_one_for(1s) > 0) {
    }
  }
  outcome.hello = host.hello();
  return outcome;
}

std::string welcome(int protocol_version, const std::string& rest) {
  return R"({"type":"welcome","protocol_version":)" + std::to_string(protocol_version) +
         R"(,"muster_version":"99.1")" + rest + "}";
}

const std::string kOurs = "muster " MUSTER_VERSION;
const std::string kOurProtocol = "protocol " + std::to_string(kNativeProtocolVersion);

TEST_CASE("native client: it leaves a host with another protocol version and names both versions",
          "[conformance][rendezvous]") {
  for (const int version : {0, kNativeProtocolVersion + 1})
    for (const std::string rest : {R"(,"peer_address":"127.0.0.1")", R"(,"peer_address":{})", ""}) {
      INFO(version << " " << rest);
      const Outcome outcome = answered_with(welcome(version, rest));
      CHECK(outcome.kind == HostKind::Refused);
      CHECK(outcome.refusal == "it is muster 99.1 with protocol " + std::to_string(version) +
                                   ", this node is " + kOurs + " with " + kOurProtocol);
    }
}

TEST_CASE("native client: a refusal is passed on with the host's text",
          "[conformance][rendezvous]") {
  const Outcome outcome = answered_with(
      R"({"type":"refused","text":"protocol 1 ended with muster 99","since":"99.0"})");
  CHECK(outcome.kind == HostKind::Refused);
  CHECK(outcome.refusal == "protocol 1 ended with muster 99");
  CHECK(answered_with(R"({"type":"refused","text":""})").refusal == "it does not say why");
}

TEST_CASE(
    "native client: the error for an unreadable answer names the fault and this node's version",
    "[conformance][rendezvous]") {
  struct Bad {
    std::string answer, why;
  };
  for (const Bad& bad :
       {Bad{R"({"type":"levitate"})", "field type"}, Bad{"[1]", "an object is wanted"},
        Bad{welcome(kNativeProtocolVersion, ""), "field peer_address: missing"},
        Bad{R"({"type":"welcome"})", "field protocol_version: missing"},
        Bad{R"({"type":"waiting","text":"?"})", "does not answer hello"}}) {
    INFO(bad.answer);
    const Outcome outcome = answered_with(bad.answer);
    CHECK(outcome.kind == HostKind::Refused);
    CHECK_THAT(outcome.refusal, Catch::Contains(bad.why));
    CHECK_THAT(outcome.refusal, Catch::Contains(kOurs + " (" + kOurProtocol + ")"));
  }
}

TEST_CASE("native client: another release with the same protocol version is accepted",
          "[conformance][rendezvous]") {
  const Outcome older = answered_with(welcome(kNativeProtocolVersion, R"(,"peer_address":"::1")"));
  CHECK(older.kind == HostKind::Muster);
  CHECK(older.welcome.muster_version == "99.1");
  CHECK_FALSE(older.welcome.lease);
  const Outcome newer =
      answered_with(welcome(kNativeProtocolVersion,
                            R"(,"peer_address":"::1","lease_ns":7000000000,"new":{"x":[1]})"),
                    R"({"type":"waiting","text":"for b","new":[{"y":2}]})");
  CHECK(newer.kind == HostKind::Muster);
  CHECK(newer.welcome.lease == Duration(7s));
  CHECK(newer.told == "for b");
}

TEST_CASE("native client: its first message has its protocol version and its release",
          "[conformance][rendezvous]") {
  const Outcome outcome = answered_with(R"({"type":"refused","text":"no"})");
  const auto hello = decode_native_request(outcome.hello, {});
  REQUIRE(hello.has_value());
  CHECK(std::get<NativeHello>(*hello).protocol_version == kNativeProtocolVersion);
  CHECK(std::get<NativeHello>(*hello).muster_version == MUSTER_VERSION);
  CHECK(std::get<NativeHello>(*hello).run_id == "job");
}

}  // namespace
}  // namespace muster::testing
