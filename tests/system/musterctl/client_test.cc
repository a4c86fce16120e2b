// musterctl's client, and a server that sends any bytes.
#include "musterctl/client.h"

#include <cstdint>
#include <future>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <catch2/catch.hpp>

namespace muster::ctl::testing {

namespace asio = boost::asio;
using asio::ip::tcp;
using Answer = boost::system::result<HttpAnswer, ClientError>;

struct ClientTest {
  // Sends the pieces, closes the connection if `closes`, and returns what the client makes of them.
  Answer answer(std::vector<std::string> pieces, bool closes = true) {
    const std::uint16_t port = acceptor.local_endpoint().port();
    auto server = std::async(std::launch::async, [&] {
      tcp::socket socket = acceptor.accept();
      socket.set_option(tcp::no_delay(true));
      boost::system::error_code gone;
      asio::read_until(socket, asio::dynamic_buffer(request), "\r\n\r\n", gone);
      for (const std::string& piece : pieces)
        asio::write(socket, asio::buffer(piece), gone);
      if (closes) socket.close();
      return socket;  // Else open until the client has its answer.
    });
    Answer got = get({.host = "127.0.0.1", .port = port}, "/api/v1/runs", nullptr);
    server.get();
    return got;
  }
  std::string refusal(std::vector<std::string> pieces, bool closes = true) {
    const Answer got = answer(std::move(pieces), closes);
    REQUIRE_FALSE(got.has_value());
    return got.error().reason;
  }

  asio::io_context loop{1};
  tcp::acceptor acceptor{loop, {asio::ip::address_v4::loopback(), 0}};
  std::string request;
};

TEST_CASE_METHOD(ClientTest, "musterctl client: the request, and the parts of its answer",
                 "[system][musterctl]") {
  const Answer got = answer({"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n",
                             "WWW-Authenticate: Bearer realm=\"musterd\"\r\n"
                             "WWW-Authenticate: Muster nonce=\"0af9\"\r\n\r\nhello, more"});
  REQUIRE(got.has_value());
  CHECK(got->status == 404);
  CHECK(got->body == "hello");
  CHECK(got->nonce == "0af9");
  CHECK_FALSE(got->token_refused);
  CHECK_THAT(request, Catch::StartsWith("GET /api/v1/runs HTTP/1.1\r\nX-Muster-Action: 1\r\n"));
  CHECK_THAT(request, Catch::Contains("\r\nHost: 127.0.0.1:"));
  CHECK_THAT(request, Catch::Contains("\r\nUser-Agent: musterctl/" MUSTER_VERSION "\r\n"));
  CHECK_THAT(request, Catch::Contains("\r\nConnection: close\r\n"));
}

TEST_CASE_METHOD(ClientTest, "musterctl client: an answer in pieces is complete at its length",
                 "[system][musterctl]") {
  std::vector<std::string> pieces;
  for (const char one : std::string_view("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"))
    pieces.emplace_back(1, one);
  const Answer got = answer(std::move(pieces), false);  // The connection stays open.
  REQUIRE(got.has_value());
  CHECK(got->body == "hello");
}

TEST_CASE_METHOD(ClientTest, "musterctl client: an answer that ends too early was cut off",
                 "[system][musterctl]") {
  CHECK_THAT(refusal({"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"}),
             Catch::Contains(": the answer was cut off. Is that the port"));
}

TEST_CASE_METHOD(ClientTest, "musterctl client: what is no answer of musterd is refused",
                 "[system][musterctl]") {
  const std::string text = GENERATE(
      as<std::string>{}, "", "SSH-2.0-OpenSSH\r\n\r\n", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\n\r\n",
      "HTTP/1.1 x00 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
  CHECK_THAT(refusal({text}),
             Catch::Contains(": what answers is not musterd's HTTP. Is that the port"));
}

TEST_CASE_METHOD(ClientTest, "musterctl client: an answer has limits for its head and its length",
                 "[system][musterctl]") {
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Length: ";
  CHECK_THAT(refusal({head + std::to_string(kMaxAnswerBytes + 1) + "\r\n\r\n"}, false),
             Catch::Contains(": Message too long. Is it there"));
  CHECK_THAT(refusal({head + "0\r\nX: " + std::string(kMaxHeadBytes, 'x')}, false),
             Catch::Contains("not musterd's HTTP"));
  CHECK(
      answer({head + "0\r\nX: " + std::string(kMaxHeadBytes - 100, 'x') + "\r\n\r\n"}).has_value());
}

TEST_CASE("musterctl client: nobody listens", "[system][musterctl]") {
  asio::io_context loop{1};
  tcp::socket bound{loop, {asio::ip::address_v4::loopback(), 0}};  // Keeps the port from others.
  const auto got = get({.host = "127.0.0.1", .port = bound.local_endpoint().port()}, "/", nullptr);
  REQUIRE_FALSE(got.has_value());
  CHECK_THAT(got.error().reason, Catch::Contains(": Connection refused. Is it there"));
}

}  // namespace muster::ctl::testing
