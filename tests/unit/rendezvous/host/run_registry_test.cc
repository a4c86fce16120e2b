// The runs of a host: keys, deadlines, and room for further runs.

#include "rendezvous/host/run_registry.h"

#include <catch2/catch.hpp>

namespace muster::testing {
namespace {

using namespace std::chrono_literals;

struct RegistryTest {
  HostedRun& add(const std::string& key, const std::string& peer = "p") {
    auto run = std::make_unique<HostedRun>(report_bytes);
    run->key = key;
    run->peer = peer;
    return registry.add(std::move(run));
  }

  std::size_t report_bytes = 0;  // Declared before the registry: the runs change it.
  RunRegistry registry;
  Instant now{};
};

TEST_CASE_METHOD(RegistryTest, "registry: a run is found by its key until it is erased",
                 "[unit][rendezvous]") {
  HostedRun& run = add("a");
  CHECK(registry.find("a") == &run);
  CHECK(registry.find("b") == nullptr);
  CHECK(registry.size() == 1);
  registry.set_deadline(run, now);
  registry.set_idle(run, now);
  registry.erase(run);
  CHECK(registry.find("a") == nullptr);
  CHECK(registry.size() == 0);
  CHECK_FALSE(registry.next_deadline());
  CHECK(registry.due(now).empty());
  CHECK(registry.longest_idle("p", {.runs = 0, .runs_per_peer = 1}) == nullptr);
}

TEST_CASE_METHOD(RegistryTest, "registry: runs are due in the order of their deadlines",
                 "[unit][rendezvous]") {
  HostedRun& a = add("a");
  registry.set_deadline(a, now + 3s);
  registry.set_deadline(add("b"), now + 2s);
  registry.set_deadline(add("c"), now + 1s);
  CHECK(registry.next_deadline() == now + 1s);
  CHECK(registry.due(now).empty());
  CHECK(registry.due(now + 2s) == std::vector<std::string>{"c", "b"});
  registry.set_deadline(a, now);
  CHECK(registry.due(now + 2s) == std::vector<std::string>{"a", "c", "b"});
  registry.set_deadline(a, std::nullopt);
  CHECK(registry.next_deadline() == now + 1s);
}

TEST_CASE_METHOD(RegistryTest, "registry: the run that has been idle longest makes room",
                 "[unit][rendezvous]") {
  const RunRegistry::Limits limits{.runs = 3, .runs_per_peer = 2};
  HostedRun& a = add("a", "p");
  HostedRun& b = add("b", "q");
  CHECK(registry.has_room("p", limits));
  HostedRun& c = add("c", "q");
  CHECK_FALSE(registry.has_room("p", limits));  // The host is full.
  CHECK(registry.longest_idle("p", limits) == nullptr);
  registry.set_idle(b, now + 2s);
  registry.set_idle(c, now + 1s);
  registry.set_idle(a, now);
  CHECK(registry.longest_idle("p", limits) == &a);
  // A peer that is full makes room itself, also if others have been idle longer.
  CHECK(registry.longest_idle("q", limits) == &c);
  registry.set_idle(c, std::nullopt);
  CHECK(registry.longest_idle("q", limits) == &b);
  registry.erase(a);
  CHECK(registry.has_room("p", limits));
  CHECK_FALSE(registry.has_room("q", limits));
  registry.erase(b);
  CHECK(registry.has_room("q", limits));
}

}  // namespace
}  // namespace muster::testing
