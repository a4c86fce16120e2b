// Effects wait for the changes before them, but not for a broken disk.

#include "rendezvous/host/durability_gate.h"

#include <catch2/catch.hpp>

namespace muster::testing {
namespace {

using namespace std::chrono_literals;
using News = DurabilityGate::News;

struct GateTest {
  explicit GateTest(bool shared_state = false)
      : gate({.recorded = true, .shared_state = shared_state, .patience = 5s}) {}

  void change() { gate.forget("run"); }
  void send(const std::string& key) { gate.send(ShowState{key}); }
  std::vector<std::string> leave() {
    std::vector<std::string> keys;
    for (const RunEffect& effect : gate.take_effects())
      keys.push_back(std::get<ShowState>(effect).state_key);
    return keys;
  }
  News report(std::uint64_t durable, const std::string& problem = {}) {
    return gate.handle_report({.durable = durable, .problem = problem}, now);
  }

  Instant now{};
  DurabilityGate gate;
};
struct SharedGateTest : GateTest {
  SharedGateTest() : GateTest(true) {}
};
using Keys = std::vector<std::string>;

TEST_CASE_METHOD(GateTest, "gate: an effect waits for the changes before it",
                 "[unit][rendezvous]") {
  send("before");
  CHECK(leave() == Keys{"before"});
  change();
  send("first");
  CHECK(leave().empty());
  REQUIRE(gate.take_changes(now));
  change();
  send("second");
  CHECK(leave().empty());
  CHECK_FALSE(gate.has_effects());
  CHECK(report(1) == News::None);
  CHECK(gate.has_effects());
  CHECK(leave() == Keys{"first"});
  REQUIRE(gate.take_changes(now)->number == 2);
  CHECK_FALSE(gate.take_changes(now));
  report(2);
  CHECK(leave() == Keys{"second"});
  send("after");
  CHECK(leave() == Keys{"after"});
}

TEST_CASE_METHOD(GateTest, "gate: no effect waits for a disk that fails, until it works again",
                 "[unit][rendezvous]") {
  change();
  send("first");
  CHECK(leave().empty());
  gate.take_changes(now);
  CHECK(report(0, "disk is full") == News::Failing);
  CHECK(report(0, "disk is full") == News::None);
  CHECK(gate.problem() == "disk is full");
  CHECK(leave() == Keys{"first"});
  change();
  gate.take_changes(now);
  send("second");
  CHECK(leave() == Keys{"second"});
  // The changes that existed at the failure are durable, later ones are on their way.
  CHECK(report(1) == News::Works);
  CHECK(gate.works());
  send("third");
  CHECK(leave().empty());
  CHECK(report(2) == News::None);
  CHECK(leave() == Keys{"third"});
}

TEST_CASE_METHOD(SharedGateTest, "gate: with a shared state effects wait, also while it fails",
                 "[unit][rendezvous]") {
  change();
  send("first");
  CHECK(leave().empty());
  gate.take_changes(now);
  CHECK(report(0, "no majority") == News::Failing);
  CHECK(leave().empty());
  CHECK(report(1) == News::Works);
  CHECK(leave() == Keys{"first"});
}

TEST_CASE_METHOD(GateTest, "gate: the storage has some time to answer", "[unit][rendezvous]") {
  CHECK_FALSE(gate.patient_until());
  change();
  gate.take_changes(now);
  CHECK(gate.waiting_since() == now);
  CHECK(gate.patient_until() == now + 5s);
  change();
  gate.take_changes(now += 1s);
  CHECK(gate.patient_until() == now + 4s);
  report(1);  // An answer gives it the whole time again.
  CHECK(gate.patient_until() == now + 5s);
  CHECK(gate.fail("it hangs") == News::Failing);
  CHECK_FALSE(gate.patient_until());
  report(2);
  CHECK_FALSE(gate.waiting_since());
}

TEST_CASE_METHOD(GateTest, "gate: the effects for a closed connection are dropped",
                 "[unit][rendezvous]") {
  gate.send(SendNative{{7}, NativeWaiting{"a"}});
  gate.drop_client({7});
  CHECK(gate.take_effects().empty());
  change();
  gate.send(SendNative{{7}, NativeWaiting{"b"}});
  gate.send(SendNative{{8}, NativeWaiting{"c"}});
  CHECK(gate.take_effects().empty());
  gate.drop_client({7});
  gate.send(SendNative{{7}, NativeWaiting{"d"}});  // Another client with this number.
  gate.take_changes(now);
  CHECK(gate.take_effects().empty());
  report(1);
  const auto effects = gate.take_effects();
  REQUIRE(effects.size() == 2);
  CHECK(std::get<SendNative>(effects[0]).to == ConnectionId{8});
  CHECK(std::get<NativeWaiting>(std::get<SendNative>(effects[1]).message).text == "d");
}

TEST_CASE("gate: without a record nothing is kept, and nothing waits", "[unit][rendezvous]") {
  DurabilityGate gate({});
  gate.forget("run");
  gate.record("run", {});
  gate.record_end({});
  CHECK_FALSE(gate.take_changes(Instant{}));
  gate.send(ShowState{"key"});
  CHECK(gate.take_effects().size() == 1);
}

}  // namespace
}  // namespace muster::testing
