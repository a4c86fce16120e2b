#include "base/net/connect_any.h"

#include <sys/socket.h>

#include <exception>
#include <utility>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include "base/system/clock.h"

namespace muster {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

const tcp::endpoint kAnyPort(asio::ip::address_v4::loopback(), 0);

struct ConnectTest {
  asio::io_context loop{1};
  tcp::socket socket{loop};

  error_code connect(std::vector<tcp::endpoint> endpoints, Duration limit) {
    error_code result;
    asio::co_spawn(loop,
                   connect_any(socket, std::move(endpoints), now() + limit, asio::error::timed_out),
                   [&](const std::exception_ptr& thrown, error_code ec) {
                     CHECK_FALSE(thrown);
                     result = ec;
                   });
    loop.restart();
    loop.run();
    return result;
  }
  /// A port at which nobody listens, as long as the socket that holds it exists.
  tcp::socket held_port() {
    tcp::socket holder(loop, tcp::v4());
    holder.bind(kAnyPort);
    return holder;
  }
};

/// Listens, but answers no further client: its queue is full.
struct DeafListener {
  explicit DeafListener(asio::io_context& loop) : acceptor(loop, tcp::v4()) {
    acceptor.bind(kAnyPort);
    acceptor.listen(0);
    for (int i = 0; i < 4; ++i) {
      tcp::socket& client = clients.emplace_back(loop, tcp::v4());
      client.native_non_blocking(true);
      tcp::endpoint here = acceptor.local_endpoint();
      // Asio's connect() would wait until the connection is made.
      ::connect(client.native_handle(), here.data(), static_cast<socklen_t>(here.size()));
    }
  }
  tcp::acceptor acceptor;
  std::vector<tcp::socket> clients;
};

TEST_CASE_METHOD(ConnectTest, "connect any: the first address that accepts is taken",
                 "[unit][rendezvous]") {
  tcp::acceptor listener(loop, kAnyPort);
  const tcp::socket refusing = held_port();
  REQUIRE_FALSE(
      connect({refusing.local_endpoint(), listener.local_endpoint()}, std::chrono::seconds(60)));
  CHECK(socket.remote_endpoint() == listener.local_endpoint());
}

TEST_CASE_METHOD(ConnectTest, "connect any: an address that does not answer gets only its share",
                 "[unit][rendezvous]") {
  const DeafListener deaf(loop);
  tcp::acceptor listener(loop, kAnyPort);
  REQUIRE_FALSE(connect({deaf.acceptor.local_endpoint(), listener.local_endpoint()},
                        std::chrono::seconds(2)));
  CHECK(socket.remote_endpoint() == listener.local_endpoint());
}

TEST_CASE_METHOD(ConnectTest, "connect any: without a server the error says what is known of it",
                 "[unit][rendezvous]") {
  const DeafListener deaf(loop);
  const tcp::socket refusing = held_port();
  const tcp::endpoint silent = deaf.acceptor.local_endpoint();
  CHECK(connect({refusing.local_endpoint()}, std::chrono::seconds(60)) ==
        asio::error::connection_refused);
  CHECK(connect({silent, refusing.local_endpoint()}, std::chrono::milliseconds(100)) ==
        asio::error::timed_out);
  CHECK(connect({}, std::chrono::seconds(60)) == asio::error::host_not_found);
}

TEST_CASE("connect any: only numeric addresses become endpoints", "[unit][rendezvous]") {
  const auto endpoints = endpoints_of({"127.0.0.1", "localhost", "::1"}, 7);
  REQUIRE(endpoints.size() == 2);
  CHECK(endpoints[0] == tcp::endpoint(asio::ip::address_v4::loopback(), 7));
  CHECK(endpoints[1] == tcp::endpoint(asio::ip::address_v6::loopback(), 7));
}

}  // namespace
}  // namespace muster
