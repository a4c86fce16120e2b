// The server over loopback: its limits at their edges, and the effect of bad clients on others.

#include <unistd.h>

#include <atomic>
#include <vector>

#include "tests/support/listener.h"
#include "tests/system/rendezvous/store_server_fixture.h"

namespace muster {
namespace {

using namespace testing;

TEST_CASE("store server: values of any size up to the limit are stored and returned",
          "[conformance][store]") {
  RunningServer server({.codec = {.value_bytes = 1 << 20}});
  Client a(server.port());
  for (const std::size_t size : {0, 1, 16'383, 16'384, 65'535, 65'536, 200'000, 1 << 20}) {
    const std::string value(size, static_cast<char>('a' + size % 26));
    a.send(set_of("/k", value)).send(get_of("/k"));
    REQUIRE(a.receive(8) == u64(size));
    REQUIRE(a.receive(size) == value);
  }
  Client over(server.port());
  over.send(bytes_of({.query = Query::Set, .key = "/k"}).substr(0, 11) + u64((1 << 20) + 1));
  CHECK(over.closed());
  CHECK(a.alive());
  CHECK(contains(server.stop(), over.name() + " reason=\"value is too long"));
}

TEST_CASE("store server: large requests in small pieces, with others behind them",
          "[conformance][store]") {
  RunningServer server;
  Client a(server.port());
  const std::string value(300'000, 'v');
  std::string bytes;
  for (const char key : {'a', 'b', 'c'})
    bytes += set_of(std::string("/") + key, value) + kPing;
  bytes += get_of("/b");
  for (std::size_t at = 0; at < bytes.size(); at += 70'001)
    a.send(std::string_view(bytes).substr(at, 70'001));
  CHECK(a.receive(12) == kPong + kPong + kPong);
  CHECK(a.receive(8 + value.size()) == u64(value.size()) + value);
}

TEST_CASE(
    "store server: garbage and absurd lengths close only that connection, and the log names them",
    "[conformance][store]") {
  RunningServer server;
  Client good(server.port());
  const std::string key = u64(2) + "/k";
  const std::string set(1, '\1');
  for (const std::string& bad :
       {std::string("\xff"), std::string("\x13"), set + u64(std::uint64_t{1} << 63),
        set + u64(~std::uint64_t{0}), set + key + u64(std::uint64_t{1} << 62),
        std::string("\x05") + u64(std::uint64_t{1} << 63),
        std::string("\x0b") + u64(std::uint64_t{1} << 63), set + u64(8193), kHello}) {
    Client client(server.port());
    client.send(kPing + bad);
    CHECK(client.receive(4) == kPong);  // The request before it is answered.
    CHECK(client.closed());
    CHECK(good.alive());
  }
  Client http(server.port(), false);
  http.send("GET / HTTP/1.1\r\n\r\n");
  CHECK(http.closed());
  Client early(server.port(), false);
  early.send(set_of("/evil", "1"));
  CHECK(early.closed());
  CHECK(good.send(get_of("/evil")).receive(8) == u64(0));
  CHECK(contains(server.stop(), http.name() + " reason=\"the first request is not VALIDATE"));
}

TEST_CASE("store server: a client without VALIDATE is closed in time, any other may stay silent",
          "[conformance][store]") {
  RunningServer server({.validate_within = 1h});
  Client silent(server.port(), false);
  Client half(server.port(), false);
  half.send(std::string_view(kHello).substr(0, 3));
  Client good(server.port());
  REQUIRE(good.alive());
  server.set_time_limits(200ms, 1h);
  CHECK(silent.closed());
  CHECK(half.closed());
  CHECK(good.alive());
  const std::string log = server.stop();
  // One log line for both: they have the same address and the same fault.
  CHECK(contains(log, silent.name() + " reason=\"no VALIDATE in time"));
  CHECK_FALSE(contains(log, good.name()));
}

TEST_CASE("store server: half a request followed by silence does not affect other clients",
          "[conformance][store]") {
  RunningServer server({.stalled_after = 200ms});
  Client half(server.port());
  half.send(set_of("/k", "value").substr(0, 15));
  Client good(server.port());
  CHECK(good.alive());
  CHECK(half.closed());
  CHECK(good.send(get_of("/k")).receive(8) == u64(0));
  CHECK(contains(server.stop(), half.name() + " reason=\"half a request"));
}

TEST_CASE("store server: a connection above the limit is closed, and a free place is used again",
          "[conformance][store]") {
  RunningServer server({.limits = {.connections = 2}});
  auto first = std::make_unique<Client>(server.port());
  Client second(server.port());
  REQUIRE(first->alive());
  REQUIRE(second.alive());
  Client third(server.port());
  CHECK(third.closed());
  first.reset();
  REQUIRE(server.until([](const StoreServerStats& stats) { return stats.connections == 1; }));
  Client fourth(server.port());
  CHECK(fourth.alive());
  CHECK(contains(server.stop(), third.name() + " reason=\"too many connections"));
}

TEST_CASE("store server: a client whose request would overfill the table is closed",
          "[conformance][store]") {
  RunningServer server({.table = {.keys = 1, .bytes = 1 << 20}});
  Client a(server.port());
  a.send(set_of("/a", "1"));
  REQUIRE(a.alive());
  Client b(server.port());
  b.send(set_of("/b", "1"));
  CHECK(b.closed());
  CHECK(a.alive());
  CHECK(contains(server.stop(), b.name() + " reason=\"the store is full: limit keys=1\""));
}

TEST_CASE("store server: incomplete requests count as memory, too", "[conformance][store]") {
  RunningServer server({.codec = {.value_bytes = 8 << 20}, .table = {.bytes = 1 << 20}});
  Client good(server.port());
  Client greedy(server.port());
  greedy.send(set_of("/k", std::string(4 << 20, 'v')).substr(0, 3 << 20));
  CHECK(greedy.closed());
  CHECK(good.alive());
  CHECK(contains(server.stop(), greedy.name() + " reason=\"the store is full: limit total_bytes"));
}

TEST_CASE("store server: a slow reader is paused, and then gets every reply",
          "[conformance][store]") {
  constexpr std::size_t kValueBytes = 1 << 20;
  constexpr std::size_t kReplies = 64;
  RunningServer server({.limits = {.queued_bytes = 1 << 20}});
  Client slow(server.port());
  Client good(server.port());
  slow.send(set_of("/v", std::string(kValueBytes, 'v')));
  const std::uint64_t before = server.stats().traffic.all_requests();
  for (std::size_t i = 0; i < kReplies; ++i)
    slow.send(get_of("/v"));
  slow.send(kPing);
  REQUIRE(good.alive());
  // The kernel's buffers take some megabytes; the server keeps the rest as requests, not as
  // replies.
  REQUIRE(server.until(
      [&](const StoreServerStats& stats) { return stats.traffic.all_requests() > before + 2; }));
  CHECK(good.alive());
  CHECK(server.stats().traffic.all_requests() < before + kReplies);
  for (std::size_t i = 0; i < kReplies; ++i) {
    REQUIRE(slow.receive(8) == u64(kValueBytes));
    REQUIRE(slow.receive(kValueBytes).size() == kValueBytes);
  }
  CHECK(slow.receive(4) == kPong);
}

TEST_CASE("store server: a client that reads while it is paused gets every reply, too",
          "[conformance][store]") {
  constexpr std::size_t kValueBytes = 4 << 10;
  constexpr std::size_t kReplies = 20'000;
  // Nearly every reply causes a pause, in which the client goes on reading.
  RunningServer server(
      {.descriptors = {testing::listener_with_little_room()}, .limits = {.queued_bytes = 1}});
  Client client(server.port());
  client.send(set_of("/v", std::string(kValueBytes, 'v')));
  std::thread asks([&client] {
    for (std::size_t i = 0; i < kReplies; ++i)
      client.send(get_of("/v"));
  });
  std::size_t whole = 0;
  while (whole < kReplies && client.receive(8 + kValueBytes).size() == 8 + kValueBytes)
    ++whole;
  asks.join();
  CHECK(whole == kReplies);
}

TEST_CASE("store server: a client that never reads its replies is closed", "[conformance][store]") {
  constexpr ConnectionLimits kLimits{.queued_bytes = 1 << 20};
  RunningServer server({.stalled_after = 1h, .limits = kLimits});
  Client slow(server.port());
  slow.send(set_of("/v", std::string(4 << 20, 'v')));
  REQUIRE(slow.alive());
  server.set_time_limits(1h, 200ms, kLimits);
  for (int i = 0; i < 16; ++i)
    slow.send(get_of("/v"));
  REQUIRE(server.until(
      [](const StoreServerStats& stats) { return stats.accepted == 1 && stats.connections == 0; }));
  CHECK(contains(server.stop(), slow.name() + " reason=\"replies are not read"));
}

TEST_CASE("store server: requests before a half-close are answered, then the server closes",
          "[conformance][store]") {
  RunningServer server;
  const std::string value(3 << 20, 'v');
  Client a(server.port());
  a.send(set_of("/k", value) + get_of("/k") + wait_for("/never") + kPing);
  a.half_close();
  CHECK(a.receive(8 + value.size()) == u64(value.size()) + value);
  CHECK(a.receive(5) == kPong);  // Nothing follows for the wait: the connection is closed.
  CHECK(Client(server.port()).send(get_of("/k")).receive(8) == u64(value.size()));
}

TEST_CASE("store server: clients that leave while they wait do not affect others",
          "[conformance][store]") {
  RunningServer server;
  Client good(server.port());
  std::vector<std::unique_ptr<Client>> waiters;
  for (int i = 0; i < 10; ++i) {
    waiters.push_back(std::make_unique<Client>(server.port()));
    waiters.back()->send(wait_for("/x"));
  }
  REQUIRE(server.until([](const StoreServerStats& stats) { return stats.waiting == 10; }));
  const std::string gone = waiters[0]->name();
  for (std::size_t i = 0; i < 9; ++i) {
    if (i % 2 == 1) waiters[i]->reset_connection();
    waiters[i].reset();
  }
  REQUIRE(server.until([](const StoreServerStats& stats) { return stats.waiting == 1; }));
  good.send(set_of("/x", "1"));
  CHECK(waiters[9]->receive(1) == std::string(1, '\0'));
  CHECK(good.alive());
  CHECK(contains(server.stop(), gone + " reason=\"the client left while it was waiting\""));
}

TEST_CASE("store server: long waits of clients that leave at once are ended in more than one turn",
          "[conformance][store]") {
  RunningServer server;
  std::vector<std::string> names;
  for (int i = 0; i < 60'000; ++i)
    names.push_back("/k" + std::to_string(i));
  const std::vector<std::string_view> keys(names.begin(), names.end());
  const std::string long_wait = bytes_of({.query = Query::Wait, .keys = keys});
  std::vector<std::unique_ptr<Client>> waiters;
  for (int i = 0; i < 10; ++i) {
    waiters.push_back(std::make_unique<Client>(server.port()));
    waiters.back()->send(long_wait);
  }
  REQUIRE(server.until([](const StoreServerStats& stats) { return stats.waiting == 10; }));
  const std::size_t before = server.stats().table_bytes;
  server.while_stopped([&] { waiters.clear(); });
  bool between = false;  // Whether others were served while some of the waits were still there.
  REQUIRE(server.until([&](const StoreServerStats& stats) {
    between |= stats.waiting == 0 && stats.table_bytes > names.size() && stats.table_bytes < before;
    return stats.table_bytes < names.size();
  }));
  CHECK(between);
  Client next(server.port());
  next.send(long_wait + set_of(names.front(), "1"));
  REQUIRE(next.alive());
  CHECK(server.stats().waiting == 1);
}

TEST_CASE("store server: a cancelled wait and a simultaneous SET are both answered, in order",
          "[conformance][store]") {
  RunningServer server;
  Client waiter(server.port());
  Client setter(server.port());
  for (int i = 0; i < 200; ++i) {
    const std::string key = "/k" + std::to_string(i);
    waiter.send(wait_for(key));
    setter.send(set_of(key, "1"));
    waiter.send(bytes_of({.query = Query::CancelWait}));
    const std::string first = waiter.receive(1);
    // 00 and 01 if the SET was first, otherwise only 01. Nothing follows after 01.
    if (first == std::string(1, '\0')) REQUIRE(waiter.receive(1) == "\x01");
    REQUIRE(setter.alive());
    REQUIRE(waiter.alive());
  }
}

TEST_CASE("store server: a SET wakes the waiters of its key and no other client",
          "[conformance][store]") {
  RunningServer server;
  std::vector<std::unique_ptr<Client>> waiters;
  for (int i = 0; i < 100; ++i) {
    waiters.push_back(std::make_unique<Client>(server.port()));
    waiters.back()->send(wait_for(i % 2 == 0 ? "/even" : "/odd"));
  }
  REQUIRE(server.until([](const StoreServerStats& stats) { return stats.waiting == 100; }));
  Client setter(server.port());
  setter.send(set_of("/even", ""));
  REQUIRE(setter.alive());
  for (std::size_t i = 0; i < 100; i += 2)
    REQUIRE(waiters[i]->receive(1) == std::string(1, '\0'));
  REQUIRE(server.stats().waiting == 50);
  for (std::size_t i = 1; i < 100; i += 2)
    REQUIRE_FALSE(waiters[i]->readable());
}

TEST_CASE("store server: a client that sends requests without a pause does not block others",
          "[conformance][store]") {
  RunningServer server;
  std::atomic<bool> enough = false;
  std::thread busy([&] {
    for (Client client(server.port()); !enough;)
      client.send(kPing).receive(kPong.size());
  });
  for (std::uint64_t last = 0, i = 0; i < 50; ++i) {
    CHECK(server.until(
        [&](const StoreServerStats& stats) { return stats.traffic.all_requests() > last + 100; }));
    last = server.stats().traffic.all_requests();
  }
  enough = true;
  busy.join();
}

TEST_CASE("store server: reset() closes everyone, empties the table and goes on",
          "[conformance][store]") {
  RunningServer server;
  Client old(server.port());
  old.send(set_of("/stale", "1") + wait_for("/never"));
  REQUIRE(old.alive());
  server.reset();
  CHECK(old.closed());
  Client next(server.port());
  CHECK(next.send(bytes_of({.query = Query::GetNumKeys})).receive(8) == u64(0));
  CHECK(server.stats().waiting == 0);
}

TEST_CASE("store server: peers that may not connect are closed before a byte is read",
          "[conformance][store]") {
  asio::ip::address asked;
  RunningServer server({.addresses = {"::"}, .admit = [&asked](const asio::ip::address& address) {
                          asked = address;
                          return address.is_v6();
                        }});
  Client stranger(server.port());
  CHECK(stranger.closed());
  CHECK(Client(server.port(), true, "::1").alive());
  CHECK(contains(server.stop(), stranger.name() + " reason=\"this address may not connect\""));
  CHECK(asked == asio::ip::make_address("::1"));  // Addresses are given without IPv4 mapping.
}

TEST_CASE("store server: an exception closes only the connection that it concerns",
          "[conformance][store]") {
  int asked = 0;
  RunningServer server({.admit = [&asked](const auto&) {
    if (++asked == 2) throw std::runtime_error("no room");
    return true;
  }});
  Client before(server.port());
  REQUIRE(before.alive());
  Client refused(server.port(), false);
  CHECK(refused.closed());
  CHECK(Client(server.port()).alive());
  CHECK(before.alive());
  CHECK(contains(server.stop(), "store_event_failed peer=none error=\"no room\""));
}

TEST_CASE("store server: a bound descriptor is taken over, whether it listens or not",
          "[conformance][store]") {
  for (const bool listening : {false, true}) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    const tcp::endpoint loopback(asio::ip::address_v4::loopback(), 0);
    REQUIRE(::bind(fd, loopback.data(), static_cast<socklen_t>(loopback.size())) == 0);
    if (listening) REQUIRE(::listen(fd, 5) == 0);
    RunningServer server({.descriptors = {fd}});
    CHECK(Client(server.port()).alive());
  }
}

TEST_CASE("store server: a failure to listen is an error with the reason", "[conformance][store]") {
  asio::io_context loop;
  RunningServer other;
  const auto fails = [&loop](StoreServerOptions options) {
    StoreServer server(loop, std::move(options));
    const auto started = server.start();
    REQUIRE(started.has_error());
    return started.error().what();
  };
  CHECK(contains(fails({.addresses = {"127.0.0.1"}, .port = other.port()}), "ss -ltnp"));
  CHECK(contains(fails({.addresses = {"localhost"}}), "not a numeric"));
  CHECK(contains(fails({.descriptors = {::dup(0)}}), "cannot listen on descriptor"));
}

}  // namespace
}  // namespace muster
