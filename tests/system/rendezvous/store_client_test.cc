// The C++ client against muster's own server, on one loop.

#include "rendezvous/client/store_client.h"

#include <sys/socket.h>

#include <chrono>
#include <exception>
#include <string>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <catch2/catch.hpp>

#include "base/net/spawn_task.h"
#include "rendezvous/server/store_server.h"

namespace muster {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using namespace std::chrono_literals;
using Keys = std::vector<std::string>;

struct StoreClientTest {
  asio::io_context loop{1};
  StoreServer server{loop, {.addresses = {"127.0.0.1"}}};

  StoreClientTest() { REQUIRE(server.start().has_value()); }
  StoreClientOptions options() {
    return {.host = "127.0.0.1", .port = server.port(), .timeout = 20s};
  }
  StoreClient client() { return StoreClient(loop.get_executor(), options()); }
  /// Runs a coroutine to its end, on the same loop as the server.
  void run(asio::awaitable<void> task) {
    std::exception_ptr failure;
    bool finished = false;
    asio::co_spawn(loop, std::move(task), [&](const std::exception_ptr& error) {
      failure = error;
      finished = true;
    });
    const auto end = std::chrono::steady_clock::now() + 60s;
    while (!finished && std::chrono::steady_clock::now() < end)
      loop.run_one_for(1s);
    REQUIRE(finished);
    if (failure) std::rethrow_exception(failure);
  }
};

asio::awaitable<void> set_later(StoreClient& client, std::string key) {
  const auto done = co_await client.set(key, "late");
  CHECK(done.has_value());
}

asio::awaitable<void> every_operation(StoreClient& a, StoreClient& b) {
  const auto first = co_await a.connect();
  const auto second = co_await b.connect();
  REQUIRE((first.has_value() && second.has_value()));
  (void)co_await a.set("k", "value");
  const auto added = co_await a.add("n", -7);
  CHECK(*added == -7);
  const auto value = co_await b.get("k");
  CHECK(*value == "value");
  (void)co_await a.append("k", "!");
  const auto swapped = co_await a.compare_set("k", "value!", "new");
  CHECK(*swapped == "new");
  Keys keys{"k", "n"};
  const auto both = co_await b.multi_get(keys);
  CHECK(*both == Keys{"new", "-7"});
  Keys names{"x", "y"};
  Keys values{"1", ""};
  (void)co_await b.multi_set(names, values);
  const auto there = co_await b.check(names);
  CHECK(*there);
  const auto announced = co_await b.announce_worker();
  CHECK(*announced == 1);
  const auto count = co_await b.num_keys();
  CHECK(*count == 5);
  const auto listed = co_await b.list_keys();
  CHECK(*listed == Keys{"k", "n", "x", "y"});  // "init/" lacks the prefix, so it is not listed.
  const auto deleted = co_await b.delete_key("x");
  CHECK(*deleted);
  const auto again = co_await b.delete_key("x");
  CHECK_FALSE(*again);
  (void)co_await a.queue_push("q", "job");
  const auto length = co_await a.queue_len("q");
  CHECK(*length == 1);
  const auto popped = co_await b.queue_pop("q");
  CHECK(*popped == "job");
  const auto empty = co_await b.queue_try_pop("q");
  CHECK(empty.error() == StoreErrc::QueueEmpty);
  CHECK(b.connected());
}

TEST_CASE_METHOD(StoreClientTest, "store client: every operation against our server",
                 "[conformance][store]") {
  StoreClient a = client();
  StoreClient b = client();
  run(every_operation(a, b));
}

asio::awaitable<void> wait_and_give_up(StoreClient& client, StoreClient& other) {
  const auto first = co_await client.connect();
  const auto second = co_await other.connect();
  REQUIRE((first.has_value() && second.has_value()));
  for (int i = 0; i < 20; ++i) {
    const std::string key = "k" + std::to_string(i);
    Keys keys{key};
    const auto waited = co_await client.wait(keys, 2ms);
    CHECK(waited.error() == StoreErrc::WaitTimedOut);
    (void)co_await other.set(key, "1");  // Must not send the client a stray byte.
    const auto value = co_await client.get(key);
    CHECK(*value == "1");
  }
  const auto executor = co_await asio::this_coro::executor;
  spawn_task(executor, "set_later", set_later(other, "late"));
  const auto late = co_await client.get("late");
  CHECK(*late == "late");
}

TEST_CASE_METHOD(StoreClientTest,
                 "store client: the connection can be used after a wait that timed out",
                 "[conformance][store]") {
  StoreClient a = client();
  StoreClient b = client();
  run(wait_and_give_up(a, b));
}

asio::awaitable<void> be_refused(StoreClient& client) {
  const auto connected = co_await client.connect();
  REQUIRE(connected.has_value());
  (void)co_await client.set("t", "text");
  const auto added = co_await client.add("t", 1);
  CHECK(added.error() == StoreErrc::Closed);
  CHECK_FALSE(client.connected());
  const auto later = co_await client.num_keys();
  CHECK(later.error() == StoreErrc::Closed);
}

TEST_CASE_METHOD(StoreClientTest, "store client: a refused request is an error with a name",
                 "[conformance][store]") {
  StoreClient a = client();
  run(be_refused(a));
}

asio::awaitable<void> fail_to_connect(StoreClient& client, boost::system::error_code want) {
  const auto connected = co_await client.connect();
  REQUIRE(connected.has_error());
  CHECK(connected.error() == want);
}

TEST_CASE_METHOD(StoreClientTest,
                 "store client: connecting ends in time without a server and with a silent one",
                 "[conformance][store]") {
  asio::ip::tcp::acceptor silent(loop, {asio::ip::address_v4::loopback(), 0});
  StoreClient b(loop.get_executor(),
                {.host = "127.0.0.1", .port = silent.local_endpoint().port(), .timeout = 100ms});
  run(fail_to_connect(b, make_error_code(StoreErrc::ConnectTimedOut)));
  const auto port = silent.local_endpoint().port();
  silent.close();
  StoreClient a(loop.get_executor(), {.host = "127.0.0.1", .port = port, .timeout = 100ms});
  run(fail_to_connect(a, asio::error::connection_refused));
}

asio::awaitable<void> connect_by_name(StoreClient& client) {
  const auto connected = co_await client.connect();
  CHECK(connected.has_value());
}

TEST_CASE_METHOD(StoreClientTest, "store client: a name is resolved, and torch 2.4 gets no PING",
                 "[conformance][store]") {
  StoreClientOptions named = options();
  named.host = "localhost";
  StoreClient a(loop.get_executor(), named);
  run(connect_by_name(a));
  StoreClientOptions old = options();
  old.ping = false;
  StoreClient b(loop.get_executor(), old);
  run(connect_by_name(b));
}

TEST_CASE_METHOD(StoreClientTest,
                 "store client: a host counts as refusing only if each of its addresses refuses",
                 "[conformance][rendezvous]") {
  using boost::asio::ip::tcp;
  // A listener with a full queue answers no SYN.
  tcp::acceptor silent(loop, tcp::v4());
  silent.bind({asio::ip::make_address("127.0.0.2"), 0});
  silent.listen(0);
  std::vector<tcp::socket> in_queue;
  for (int i = 0; i < 3; ++i) {
    in_queue.emplace_back(loop, tcp::v4());
    in_queue.back().async_connect(silent.local_endpoint(), [](const error_code&) {});
  }
  StoreClientOptions somewhere = options();
  somewhere.port = silent.local_endpoint().port();
  somewhere.timeout = 1s;
  somewhere.retry = false;
  const auto error_with = [&](std::vector<std::string> addresses) {
    somewhere.addresses = std::move(addresses);
    StoreClient none(loop.get_executor(), somewhere);
    error_code error;
    run([](StoreClient& client, error_code& result) -> asio::awaitable<void> {
      const auto done = co_await client.connect();
      REQUIRE(done.has_error());
      result = done.error();
    }(none, error));
    return error;
  };
  CHECK(error_with({"127.0.0.1", "127.0.0.3"}) == boost::system::errc::connection_refused);
  CHECK(error_with({"127.0.0.1", "127.0.0.2"}) == StoreErrc::ConnectTimedOut);
  CHECK(error_with({"127.0.0.2", "127.0.0.1"}) == StoreErrc::ConnectTimedOut);
}

}  // namespace
}  // namespace muster
