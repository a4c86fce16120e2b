// The places for HTTP connections, while the loop of the runs does not answer.

#include <string>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <catch2/catch.hpp>

#include "rendezvous/http/http_server.h"

namespace muster::http::testing {

namespace asio = boost::asio;
using asio::ip::tcp;

TEST_CASE("http: strangers that wait for the runs' loop shut out no probe", "[threads][http]") {
  asio::io_context runs_loop;  // Does not run: no view comes.
  const auto server =
      HttpServer::start({"127.0.0.1", 0}, {}, runs_loop, [] { return HttpSource{}; });
  REQUIRE(server.has_value());
  const std::string url = (*server)->url();
  const auto port = static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
  asio::io_context io;
  const auto connect = [&](const char* from, const std::string& target) {
    tcp::socket socket(io);
    socket.open(tcp::v4());
    socket.bind({asio::ip::make_address(from), 0});
    socket.connect({asio::ip::make_address("127.0.0.1"), port});
    asio::write(socket, asio::buffer("GET " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    return socket;
  };
  std::vector<tcp::socket> strangers;
  for (const char* from : {"127.0.0.20", "127.0.0.21"})
    for (std::size_t i = 0; i < kMaxConnectionsPerAddress; ++i)
      strangers.push_back(connect(from, "/readyz"));
  tcp::socket probe = connect("127.0.0.1", "/healthz");
  std::string answer;
  asio::read_until(probe, asio::dynamic_buffer(answer), "\r\n");
  CHECK(answer.substr(0, 12) == "HTTP/1.1 200");
}

}  // namespace muster::http::testing
