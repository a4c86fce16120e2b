#include "musterctl/peer_json.h"

#include <limits>
#include <string>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "musterctl/peer_wire.h"

namespace muster::ctl::testing {

const std::string kSecret = "0123456789abcdef0123456789abcdef";

NodeFacts node_facts() {
  return {.rank = 3,
          .host = "node3",
          .address = "10.0.0.3",
          .port = 4711,
          .secret = kSecret,
          .variable = "GLOO_SOCKET_IFNAME=eth0",
          .muster = "0.1.0",
          .torch = "2.13.0",
          .nccl = "2.27.3",
          .reduces = true,
          .no_reduce = "no \"reason\""};
}

Probe probe_facts() {
  return {.stage = ProbeStage::Receiving,
          .error = "no answer in time",
          .from = "10.0.0.1",
          .to = "10.0.0.3",
          .port = 4711,
          .interface = "eth0",
          .interface_mtu = 9000,
          .path_mtu = 9000,
          .segment = 8948,
          .latency_ms = 0.25,
          .ahead_seconds = -1.5};
}

// The JSON object `text` with one field changed.
std::string with(const std::string& text, const std::string& name, nlohmann::json value) {
  auto json = nlohmann::json::parse(text);
  json[name] = std::move(value);
  return json.dump();
}

TEST_CASE("peer json: written facts are read back", "[unit][musterctl]") {
  const auto peer = read_peer(to_json(PeerFacts{
      .node = node_facts(), .to = probe_facts(), .reduce = PairReduce{false, "late", 12.5}}));
  REQUIRE(peer);
  CHECK(to_json(peer->node) == to_json(node_facts()));
  REQUIRE(peer->to);
  CHECK(to_json(*peer->to) == to_json(probe_facts()));
  CHECK_FALSE(peer->from);
  REQUIRE(peer->reduce);
  CHECK_FALSE(peer->reduce->right);
  CHECK(peer->reduce->error == "late");
  CHECK(peer->reduce->ms == 12.5);
}

TEST_CASE("peer json: other bytes are refused", "[unit][musterctl]") {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("null"), std::string("[]"), std::string("7"),
        std::string("\0\xff", 2), std::string("{\"rank\":0}"), std::string(9000, '[')}) {
    INFO(text.substr(0, 40));
    CHECK_FALSE(read_node(text));
    CHECK_FALSE(read_probe(text));
    CHECK_FALSE(read_peer(text));
    CHECK_FALSE(read_reduce(text));
  }
}

TEST_CASE("peer json: each field of a node has its kind and its range", "[unit][musterctl]") {
  const std::string good = to_json(node_facts());
  REQUIRE(read_node(good));
  CHECK_FALSE(read_node(with(good, "rank", -1)));
  CHECK_FALSE(read_node(with(good, "rank", 0.5)));
  CHECK_FALSE(read_node(with(good, "rank", 1LL << 40)));
  CHECK_FALSE(read_node(with(good, "rank", ~0ULL)));
  CHECK_FALSE(read_node(with(good, "port", 0)));
  CHECK_FALSE(read_node(with(good, "port", 65536)));
  CHECK_FALSE(read_node(with(good, "host", 7)));
  CHECK_FALSE(read_node(with(good, "host", std::string(10'000, 'x'))));
  CHECK_FALSE(read_node(with(good, "secret", "short")));
  CHECK_FALSE(read_node(with(good, "secret", std::string(kSecretDigits, 'G'))));
  CHECK_FALSE(read_node(with(good, "reduces", "yes")));
  CHECK_FALSE(read_node(with(good, "torch", nullptr)));
  CHECK_FALSE(read_node(good + good));
  CHECK_FALSE(read_node(good + std::string(kMaxPeerJson, ' ')));
}

TEST_CASE("peer json: each field of a test has its kind and its range", "[unit][musterctl]") {
  const std::string good = to_json(probe_facts());
  REQUIRE(read_probe(good));
  CHECK_FALSE(read_probe(with(good, "stage", 6)));
  CHECK_FALSE(read_probe(with(good, "stage", "Done")));
  CHECK_FALSE(read_probe(with(good, "latency_ms", 1e300)));
  CHECK_FALSE(read_probe(with(good, "ahead_seconds", "1")));
  CHECK_FALSE(read_probe(with(good, "interface_mtu", -5)));
  CHECK_FALSE(read_probe(with(good, "error", nlohmann::json::array())));
  CHECK_FALSE(read_peer(with(to_json(PeerFacts{.node = node_facts()}), "to", 1)));
}

TEST_CASE("peer wire: a greeting needs the secret", "[unit][musterctl]") {
  const std::string greeting = probe_greeting(kSecret, 70'000);
  REQUIRE(greeting.size() == kGreetingBytes);
  CHECK(read_greeting(greeting, kSecret) == 70'000);
  CHECK_FALSE(read_greeting(greeting, std::string(kSecretDigits, '0')));
  CHECK_FALSE(read_greeting(greeting.substr(1), kSecret));
  CHECK_FALSE(read_greeting(greeting + "x", kSecret));
  CHECK_FALSE(read_greeting(std::string(kGreetingBytes, '\xff'), kSecret));
  std::string negative = greeting;
  negative[kGreetingBytes - 4] = '\xff';
  CHECK_FALSE(read_greeting(negative, kSecret));
}

TEST_CASE("peer wire: a welcome belongs to one rank", "[unit][musterctl]") {
  const std::string welcome = probe_welcome(2);
  REQUIRE(welcome.size() == kWelcomeBytes);
  CHECK(is_welcome_of(welcome, 2));
  CHECK_FALSE(is_welcome_of(welcome, 3));
  CHECK_FALSE(is_welcome_of("HTTP/1.1 400 Bad Req", 2));
}

TEST_CASE("peer wire: clocks are compared as NTP does it", "[unit][musterctl]") {
  constexpr WallNanoseconds kSecond = 1'000'000'000;
  PingTimes times{.sent = 100 * kSecond};
  // The other clock is 2 s ahead; 10 ms there, 5 ms of work, 10 ms back.
  REQUIRE(read_pong(probe_pong(102 * kSecond + kSecond / 100, 102 * kSecond + 15 * kSecond / 1000),
                    times));
  times.back = 100 * kSecond + 25 * kSecond / 1000;
  CHECK(ahead_seconds(times) == Approx(2.0).margin(1e-6));
  CHECK_FALSE(read_pong(std::string(kPongBytes, 'x'), times));
  CHECK_FALSE(read_pong("P", times));
}

TEST_CASE("peer wire: extreme times of a peer do no harm", "[unit][musterctl]") {
  PingTimes times{.sent = 0};
  REQUIRE(read_pong(probe_pong(std::numeric_limits<WallNanoseconds>::max(),
                               std::numeric_limits<WallNanoseconds>::min()),
                    times));
  times.back = std::numeric_limits<WallNanoseconds>::min();
  const double ahead = ahead_seconds(times);
  CHECK(read_probe(to_json(Probe{.ahead_seconds = ahead})));
}

}  // namespace muster::ctl::testing
