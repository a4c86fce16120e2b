// A server with a rendezvous, when limits close several connections at once and memory runs out.

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "tests/support/listener.h"
#include "tests/system/rendezvous/door_fixture.h"

namespace muster::testing {
namespace {

using namespace std::chrono_literals;

const std::string kHello =
    StateClient::bytes_of({.query = Query::Validate, .number = c10d::kValidationMagic});
const std::string kPing = StateClient::bytes_of({.query = Query::Ping, .number = 7});
const std::string kPong("\x07\0\0\0", 4);

RunSettings for_nodes(int count) {
  return {.min_nodes = count, .max_nodes = count, .max_restarts = 1};
}

std::string set_of(std::string_view key, std::string_view value) {
  return StateClient::bytes_of({.query = Query::Set, .key = key, .value = value});
}

bool runs_a_round(DoorServer& server) {
  return server.on_loop([](StoreServer& store) {
    const Rendezvous* rendezvous = store.runs()->rendezvous("job");
    return rendezvous != nullptr && rendezvous->phase() == Rendezvous::Phase::Running;
  });
}

bool eventually(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(kPatienceSeconds);
  for (; std::chrono::steady_clock::now() < end; ::poll(nullptr, 0, 2))
    if (done()) return true;
  return false;
}

/// A state that is durable at once. While `fails` is set, no memory is left for it.
class FailingState : public RunState {
 public:
  StoredState load() override { return {}; }
  void listen(std::function<void(const StateReport&)> on_report) override {
    report_ = std::move(on_report);
  }
  void record(StateChanges changes) override {
    if (fails) {
      ++failed;
      throw std::bad_alloc();
    }
    if (report_) report_({changes.number, ""});
  }

  std::atomic<bool> fails{false};
  std::atomic<int> failed{0};

 private:
  std::function<void(const StateReport&)> report_;
};

}  // namespace

TEST_CASE("doors: a message for a node that was closed by a limit does not reach a new connection",
          "[conformance][rendezvous]") {
  DoorServer server({}, {.descriptors = {listener_with_little_room()},
                         .limits = {.queued_total_bytes = 1 << 20}});
  StateClient setter(server.port());
  setter.send(set_of("/big", std::string(1'500'000, 'v')) + kPing);
  REQUIRE(setter.receive(4) == kPong);
  // Two nodes of a round, which read nothing. Both have the value among their unread replies.
  NativeNode first(server.port());
  NativeNode second(server.port());
  std::uint64_t messages = 0;
  for (NativeNode* node : {&first, &second}) {
    node->send(kHello + StateClient::bytes_of({.query = Query::Get, .key = "/big"}));
    node->tell(NativeHello{kNativeProtocolVersion, "9.9", "job"});
    node->join(node == &first ? "first" : "second", for_nodes(2));
    messages += 2;
    REQUIRE(
        server.until([&](const auto& stats) { return stats.traffic.native_messages == messages; }));
  }
  for (NativeNode* node : {&first, &second})
    node->tell(StoreReady{{}, 0, "127.0.0.1", 29500});
  REQUIRE(eventually([&] { return runs_a_round(server); }));
  // With its new value the table gives up the old one, so that one event closes both nodes. The
  // first one's end makes a message for the second one. In the same turn, a client connects and
  // gets the place of the node that was closed last.
  std::promise<void> release;
  auto blocked = std::async(std::launch::async, [&] {
    server.on_loop([&](StoreServer&) {
      release.get_future().wait();
      return 0;
    });
  });
  setter.send(set_of("/big", "small"));
  DoorClient newcomer(server.port());
  newcomer.send(kHello + kPing);
  release.set_value();
  blocked.get();
  CHECK(newcomer.receive(4) == kPong);
  CHECK_FALSE(newcomer.readable(100));
  CHECK(server.stats().connections == 2);
  CHECK(contains(server.stop(), "limit queued_total_bytes"));
}

TEST_CASE("doors: a turn that runs out of memory does not stop the server",
          "[conformance][rendezvous]") {
  const auto state = std::make_shared<FailingState>();
  DoorServer server({}, {.state = state});
  state->fails = true;
  NativeNode node(server.port());
  node.hello();
  node.join("node", for_nodes(1));
  REQUIRE(eventually([&] { return state->failed > 0; }));
  state->fails = false;
  DoorClient other(server.port());
  other.send(kHello);
  for (int i = 0; i < 3; ++i) {  // The handler of a timer may serve one of them.
    other.send(kPing);
    CHECK(other.receive(4) == kPong);
  }
  CHECK(contains(server.stop(), "handler_failed"));
}

TEST_CASE("doors: deadlines are handled again after one that ran out of memory",
          "[conformance][rendezvous]") {
  const auto state = std::make_shared<FailingState>();
  DoorServer server({.setup = {.lease = 200ms}}, {.validate_within = 1s, .state = state});
  NativeNode node(server.port());
  node.hello();
  node.join("node", for_nodes(1));
  node.round();
  REQUIRE(eventually([&] { return runs_a_round(server); }));
  state->fails = true;  // The next change is the end of this node's lease, in the timer's handler.
  REQUIRE(eventually([&] { return state->failed > 0; }));
  state->fails = false;
  DoorClient silent(server.port());
  CHECK(silent.closed());
  CHECK(contains(server.stop(), "no VALIDATE in time"));
}

}  // namespace muster::testing
