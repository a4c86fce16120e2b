// Both doors of a server over loopback: muster nodes and torchrun's requests in one rendezvous.

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/torchrun/state_codec.h"
#include "tests/support/listener.h"
#include "tests/system/rendezvous/door_fixture.h"

namespace muster::testing {
namespace {

using namespace std::chrono_literals;

const std::string kKey = "/torch.rendezvous.job";

RunSettings for_nodes(int least, int most, int max_restarts = 1) {
  return {.min_nodes = least, .max_nodes = most, .max_restarts = max_restarts};
}

/// `count` nodes that have joined the same run.
std::deque<NativeNode> nodes_of(std::uint16_t port, int count, const RunSettings& run) {
  std::deque<NativeNode> nodes;
  for (int i = 0; i < count; ++i) {
    nodes.emplace_back(port).hello();
    nodes.back().join("node" + std::to_string(i), run);
  }
  return nodes;
}

std::set<int> ranks(std::deque<NativeNode>& nodes, std::int64_t round, int restart_count) {
  std::set<int> found;
  for (NativeNode& node : nodes) {
    const RoundComplete place = node.round();
    CHECK(place.round == round);
    CHECK(place.restart_count == restart_count);
    CHECK(place.group_world_size == static_cast<int>(nodes.size()));
    found.insert(place.group_rank.value);
  }
  return found;
}

std::set<int> first(int count) {
  std::set<int> numbers;
  for (int i = 0; i < count; ++i)
    numbers.insert(numbers.end(), i);
  return numbers;
}

RendezvousState state_of(const std::string& text) {
  const auto decoded = decode_state(text);
  REQUIRE(decoded.has_value());
  return decoded->value_or(RendezvousState{});
}

std::string joined_by(const std::string& name, const std::string& seen) {
  RendezvousState state = state_of(seen);
  state.participants.set({name, 1, 0}, 0);
  state.last_heartbeats.set({name, 1, 0}, wall_now());
  return encode_state(state);
}

// Two nodes are in a round; then node1 says nothing. Returns the restart of which node0 hears. No
// value: this thread was late, so another lease was over before.
std::optional<RestartRound> restart_after_silence() {
  DoorServer server({.setup = {.lease = 300ms}});
  auto nodes = nodes_of(server.port(), 2, for_nodes(1, 2));
  std::array<bool, 2> has_place{};
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(kPatienceSeconds);
  while (std::chrono::steady_clock::now() < end) {
    for (const std::size_t i : {0U, 1U}) {
      NativeNode& node = nodes[i];
      if (i == 1 && has_place[1]) continue;
      if (!node.readable(25)) {
        node.tell(KeptAlive{});
        continue;
      }
      const NativeMessage message = node.next_of_all();
      if (std::holds_alternative<NativeWaiting>(message)) continue;
      if (const auto* prepare = std::get_if<PrepareStore>(&message))
        node.tell(StoreReady{{}, prepare->round, "127.0.0.1", 29500});
      else if (const auto* round = std::get_if<RoundComplete>(&message);
               round != nullptr && round->group_world_size == 2)
        has_place[i] = true;
      else if (const auto* restart = std::get_if<RestartRound>(&message);
               restart != nullptr && i == 0 && has_place[0] && has_place[1])
        return *restart;
      else
        return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("doors: muster nodes meet, fail, meet again and finish", "[conformance][rendezvous]") {
  DoorServer server;
  constexpr int kNodes = 24;
  const RunSettings run = for_nodes(kNodes, kNodes);
  auto nodes = nodes_of(server.port(), kNodes, run);
  CHECK(ranks(nodes, 0, 0) == first(kNodes));
  nodes[7].tell(WorkersFailed{{}, 0, "rank 7 exited with 3"});
  for (NativeNode& node : nodes) {
    const auto restart = node.next<RestartRound>();
    CHECK(restart.cause == RestartCause::WorkersFailed);
    CHECK(restart.who.addr == "node7");
    CHECK(restart.what == "rank 7 exited with 3");
  }
  for (int i = 0; i < kNodes; ++i)
    nodes[static_cast<std::size_t>(i)].join("node" + std::to_string(i), run, 0);
  CHECK(ranks(nodes, 1, 1) == first(kNodes));
  for (NativeNode& node : nodes)
    node.tell(NodeFinished{{}, 1, true, ""});
  for (NativeNode& node : nodes)
    CHECK(node.next<RunEnded>().succeeded);
  const std::string log = server.stop();
  CHECK(contains(log, "round_complete run=job round=0 nodes=24 took_ms="));
  CHECK(contains(log, "round_restarts run=job round=0 cause=workers_failed who=node7_1_0"));
  CHECK(contains(log, "run_ended run=job succeeded=true"));
}

TEST_CASE("doors: the number of messages grows linearly with the number of nodes",
          "[conformance][rendezvous]") {
  for (const int count : {4, 64}) {
    DoorServer server;
    const RunSettings run = for_nodes(count, count);
    auto nodes = nodes_of(server.port(), count, run);
    ranks(nodes, 0, 0);
    nodes[0].tell(WorkersFailed{{}, 0, "x"});
    for (NativeNode& node : nodes)
      node.next<RestartRound>();
    for (int i = 0; i < count; ++i)
      nodes[static_cast<std::size_t>(i)].join("node" + std::to_string(i), run, 0);
    ranks(nodes, 1, 1);
    std::size_t received = 0;
    for (const NativeNode& node : nodes)
      received += node.received;
    // Each node gets: welcome, round, restart, round. Rank 0 also gets two PrepareStore. On a slow
    // machine this may take more than a second, and then some nodes are told which nodes are
    // missing.
    const auto n = static_cast<std::size_t>(count);
    CHECK(received >= 4 * n + 2);
    CHECK(received <= 4 * n + 2 + kPatienceSeconds * n);
    // Each node sends hello, join, join. In addition there are one failure and two StoreReady.
    CHECK(server.stats().traffic.all_requests() == 3 * n + 3);
  }
}

TEST_CASE("doors: a node whose connection closes is lost", "[conformance][rendezvous]") {
  DoorServer server;
  const RunSettings run = for_nodes(2, 3);
  auto nodes = nodes_of(server.port(), 3, run);
  ranks(nodes, 0, 0);
  nodes[1].close();
  for (const std::size_t i : {0U, 2U}) {
    const auto restart = nodes[i].next<RestartRound>();
    CHECK(restart.cause == RestartCause::NodeLost);
    CHECK(restart.who.addr == "node1");
  }
  nodes[0].join("node0", run, 0);
  nodes[2].join("node2", run, 0);
  // All living nodes are back, so the round is complete at once, without a last call.
  CHECK(nodes[0].round().group_world_size == 2);
  CHECK(nodes[2].round().restart_count == 0);  // A lost node does not count for --max-restarts.
}

TEST_CASE("doors: a silent node is lost when its lease is over", "[conformance][rendezvous]") {
  std::optional<RestartRound> restart;
  for (int turn = 0; turn < 20 && !restart; ++turn)
    restart = restart_after_silence();
  REQUIRE(restart.has_value());
  CHECK(restart->cause == RestartCause::NodeLost);
  CHECK(restart->who.addr == "node1");
}

TEST_CASE("doors: a waiting node is told which nodes it waits for", "[conformance][rendezvous]") {
  DoorServer server({.waiting_interval = 10ms});
  auto nodes = nodes_of(server.port(), 2, for_nodes(3, 3));
  const NativeMessage message = nodes[0].next_of_all();
  REQUIRE(std::holds_alternative<NativeWaiting>(message));
  CHECK(contains(std::get<NativeWaiting>(message).text, "of 3 nodes have joined"));
}

TEST_CASE(
    "doors: garbage on the native door closes only that connection, and the log names the fault",
    "[conformance][rendezvous]") {
  DoorServer server;
  NativeNode good(server.port());
  CHECK(good.hello().peer_address == good.address());
  const auto frame = [](const std::string& json) {
    std::string bytes = encode(NativeRequest(KeptAlive{})).substr(0, 1);
    std::array<unsigned char, 8> length;
    boost::endian::store_little_u64(length.data(), json.size());
    return bytes + std::string(length.begin(), length.end()) + json;
  };
  const std::string hello =
      encode(NativeRequest(NativeHello{kNativeProtocolVersion, "9.9", "job"}));
  struct Bad {
    std::string bytes, reason;
  };
  for (const Bad& bad :
       {Bad{frame("{"), "native message: the message: not JSON; in the request at byte 0"},
        Bad{frame("{\"type\":\"levitate\"}"), "levitate"},
        Bad{frame("{\"type\":\"keep_alive\"}"), "the first one is not hello"},
        Bad{frame("{\"type\":\"hello\",\"protocol_version\":1}"), "field muster_version: missing"},
        Bad{hello + hello, "hello came too late"},
        Bad{hello + "\x03", "not a native message, on a connection that is native at byte"},
        Bad{hello + frame("[]"), "an object is wanted"},
        Bad{std::string("m\xff\xff\xff\xff\xff\xff\xff\x7f"),
            "native message is too long at byte 1"},
        Bad{encode(NativeRequest(NativeHello{99, "12.0", "job"})),
            "muster 12.0 at 127.0.0.1 speaks protocol 99"}}) {
    INFO(bad.reason);
    NativeNode client(server.port());
    client.send(bad.bytes);
    CHECK(client.closed());
    good.tell(KeptAlive{});  // It is not a member, but gets an answer: it is still served.
    good.next<NotAMember>();
  }
  const std::string log = server.stop();
  CHECK(contains(log, "native message: the message: not JSON; in the request at byte 0"));
  CHECK(contains(log, "native message is too long at byte 1"));
  CHECK(contains(log, "hello came too late"));
}

TEST_CASE(
    "doors: a server without a rendezvous closes the connection on a native query, as torch does",
    "[conformance][rendezvous]") {
  boost::asio::io_context loop{1};
  StoreServer server(loop, {.addresses = {"127.0.0.1"}});
  REQUIRE(server.start().has_value());
  std::thread thread([&] { loop.run(); });
  DoorClient client(server.port());
  client.send(encode(NativeRequest(NativeHello{kNativeProtocolVersion, "9.9", "job"})));
  CHECK(client.closed());
  boost::asio::post(loop, [&] { server.stop(); });
  thread.join();
}

TEST_CASE("doors: messages that arrive in small pieces are read", "[conformance][rendezvous]") {
  DoorServer server;
  NativeNode node(server.port());
  const std::string hello =
      encode(NativeRequest(NativeHello{kNativeProtocolVersion, "9.9", "job"}));
  for (const char byte : hello + encode(NativeRequest(KeptAlive{})))
    node.send({&byte, 1});
  node.next<NativeWelcome>();
  node.next<NotAMember>();
}

TEST_CASE("doors: a held compare-and-set is answered in turn", "[conformance][rendezvous]") {
  DoorServer server({.turns = {.turn = 10s, .hold = 15s}});
  std::deque<StateClient> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back(server.port()).ask_compare_set(kKey, "", kNoStateText);
    CHECK(clients.back().value() == kNoStateText);
  }
  const std::string first_state = joined_by("n0", std::string(kNoStateText));
  clients[0].ask_compare_set(kKey, kNoStateText, first_state);
  CHECK(clients[0].value() == first_state);
  // The first loser has its turn at once. The others wait for it, and none of their requests is
  // served.
  clients[1].ask_compare_set(kKey, kNoStateText, joined_by("n1", std::string(kNoStateText)));
  CHECK(clients[1].value() == first_state);
  const std::string ping = StateClient::bytes_of({.query = Query::Ping, .number = 5});
  for (const std::size_t i : {2U, 3U})
    clients[i]
        .ask_compare_set(kKey, kNoStateText, joined_by("n2", std::string(kNoStateText)))
        .send(ping);
  REQUIRE(
      server.until([](const auto& stats) { return stats.traffic.all_requests() >= 4 + 4 + 4; }));
  CHECK(!clients[2].readable());
  CHECK(!clients[3].readable());

  SECTION("when the one before has won") {
    const std::string second = joined_by("n1", first_state);
    clients[1].ask_compare_set(kKey, first_state, second);
    CHECK(clients[1].value() == second);
    CHECK(clients[2].value() == second);
    CHECK(clients[2].receive(4) == std::string("\5\0\0\0", 4));  // The answer to the ping.
    CHECK(!clients[3].readable());
  }
  SECTION("when the one before dies, and when one in the queue dies") {
    clients[2].close();
    REQUIRE(server.until([](const auto& stats) { return stats.connections == 3; }));
    CHECK(!clients[3].readable());
    clients[1].close();
    CHECK(clients[3].value() == first_state);
    CHECK(clients[3].receive(4).size() == 4);
  }
  SECTION("when the one before asks for something else") {
    clients[1].ask({.query = Query::Get, .key = kKey});
    CHECK(clients[1].value() == first_state);
    CHECK(clients[2].value() == first_state);
  }
}

TEST_CASE("doors: the key of a state behaves like an ordinary key", "[conformance][rendezvous]") {
  DoorServer server;
  const std::array<std::string_view, 2> keys{kKey, "/other"};
  const std::span<const std::string_view> state_only(keys.data(), 1);
  StateClient early(server.port());
  early.ask({.query = Query::Wait, .keys = state_only});
  REQUIRE(server.until([](const auto& stats) { return stats.waiting == 1; }));
  NativeNode node(server.port());
  node.hello();
  CHECK(early.receive(1) == std::string(1, '\0'));  // The hello has created the run.
  node.join("node", for_nodes(1, 1));
  node.round();

  StateClient client(server.port());
  client.ask({.query = Query::Check, .keys = state_only});
  CHECK(client.receive(1) == std::string(1, '\0'));
  client.ask({.query = Query::Set, .key = "/other", .value = "o"});
  client.ask({.query = Query::Get, .key = kKey});
  const std::string text = client.value();
  CHECK(state_of(text).complete);
  CHECK(state_of(text).participants.contains({"node", 1, 0}));
  client.ask({.query = Query::MultiGet, .keys = keys});
  CHECK(client.value() == text);
  CHECK(client.value() == "o");
  client.ask({.query = Query::DeleteKey, .key = kKey});
  CHECK(client.receive(8) == std::string(8, '\0'));
  client.ask({.query = Query::Set, .key = kKey, .value = "mine"});
  CHECK(client.closed());
  StateClient garbage(server.port());
  garbage.ask_compare_set(kKey, text, "gASVgarbage");
  CHECK(garbage.closed());
  const std::string log = server.stop();
  CHECK(
      contains(log, "a rendezvous' state is written by COMPARE_SET only; in the request at byte"));
  CHECK(contains(log, "the desired state of /torch.rendezvous.job: "));
}

TEST_CASE("doors: a run id can be used again, and the keys of its old rounds are removed",
          "[conformance][rendezvous]") {
  DoorServer server;
  NativeNode node(server.port());
  node.hello();
  node.join("node", for_nodes(1, 1));
  node.round();
  StateClient store(server.port());
  for (const char* key : {"/torch.rendezvous.job.0/MASTER_ADDR", "/torch.rendezvous.job.x/kept",
                          "/torch.rendezvous.job2.0/kept"})
    store.ask({.query = Query::Set, .key = key, .value = "1"});
  node.tell(NodeFinished{{}, 0, true, ""});
  CHECK(node.next<RunEnded>().succeeded);
  StateClient late(server.port());
  late.ask_compare_set(kKey, "", kNoStateText);
  CHECK(late.value() == kNoStateText);  // The run has no nodes, so its id can be used again.
  store.ask({.query = Query::Get, .key = "/torch.rendezvous.job.0/MASTER_ADDR"});
  CHECK(store.value().empty());
  for (const char* key : {"/torch.rendezvous.job.x/kept", "/torch.rendezvous.job2.0/kept"}) {
    store.ask({.query = Query::Get, .key = key});
    CHECK(store.value() == "1");
  }
}

TEST_CASE("doors: for nodes on one machine, the loopback address of the workers' store stays",
          "[conformance][rendezvous]") {
  // All addresses in 127/8 are loopback. Only for a peer on another machine the store's address
  // would be replaced.
  DoorServer server;
  auto nodes = nodes_of(server.port(), 2, for_nodes(2, 2));
  CHECK(nodes[0].round("127.0.0.1").store->addr == "127.0.0.1");
  CHECK(nodes[1].round().store->addr == "127.0.0.1");
}

TEST_CASE("doors: a node that does not read is closed and delays no other node",
          "[conformance][rendezvous]") {
  // stalled_after is long enough for a server with sanitizers to handle everything it has read.
  DoorServer server({}, {.descriptors = {testing::listener_with_little_room()},
                         .stalled_after = 2s,
                         .limits = {.queued_bytes = 4096}});
  NativeNode good(server.port());
  good.hello();
  NativeNode deaf(server.port());
  deaf.hello();
  // Each keep-alive is answered with NotAMember. When too many answers are unread, the server stops
  // reading from this client.
  std::string many;
  while (many.size() < (64U << 10))
    many += encode(NativeRequest(KeptAlive{}));
  std::size_t sent = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(kPatienceSeconds);
  bool closed = false;
  while (!closed && std::chrono::steady_clock::now() < end) {
    const std::string_view rest = std::string_view(many).substr(sent % many.size());
    const ssize_t part = ::send(deaf.fd(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (part > 0) sent += static_cast<std::size_t>(part);
    closed = part < 0 && errno != EAGAIN;
    if (part < 0 && !closed) {
      good.tell(KeptAlive{}).next<NotAMember>();
      pollfd writable{deaf.fd(), POLLOUT, 0};
      ::poll(&writable, 1, 10);
    }
  }
  CHECK(closed);
  good.tell(KeptAlive{}).next<NotAMember>();
  CHECK(server.stats().connections == 1);
  const std::string log = server.stop();
  INFO(log);
  CHECK(contains(log, "not read"));  // limit stalled_seconds, or queued_bytes.
}

TEST_CASE("doors: a drained server has notified all nodes and lets torchrun nodes leave",
          "[conformance][rendezvous]") {
  DoorServer server({.only_run = "job"});
  NativeNode node(server.port());
  node.hello();
  node.join("node", for_nodes(1, 1));
  node.round();
  StateClient torch(server.port());
  torch.ask({.query = Query::Get, .key = kKey});
  CHECK(!torch.value().empty());
  node.tell(NodeFinished{{}, 0, true, ""});
  std::promise<void> drained;
  auto done = drained.get_future();
  const auto drain = [&](Duration within) {
    server.on_loop([&](StoreServer& store) {
      store.drain(now() + within, [&] { drained.set_value(); });
      return 0;
    });
  };

  SECTION("when the last one has left") {
    drain(1h);
    CHECK(node.next<RunEnded>().succeeded);
    NativeNode late(server.port());
    late.tell(NativeHello{kNativeProtocolVersion, "9.9", "job"});
    CHECK(contains(late.next<NativeRefused>().text, "ending"));
    CHECK(done.wait_for(0s) == std::future_status::timeout);
    torch.ask({.query = Query::Get, .key = kKey});
    CHECK(state_of(torch.value()).closed);
    torch.close();
    CHECK(done.wait_for(std::chrono::seconds(kPatienceSeconds)) == std::future_status::ready);
  }
  SECTION("or at the deadline") {
    drain(50ms);
    CHECK(done.wait_for(std::chrono::seconds(kPatienceSeconds)) == std::future_status::ready);
    torch.ask({.query = Query::Get, .key = kKey});  // The server still serves until it stops.
    CHECK(!torch.value().empty());
  }
}

}  // namespace muster::testing
