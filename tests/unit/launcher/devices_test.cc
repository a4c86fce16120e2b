#include "launcher/devices.h"

#include <catch2/catch.hpp>

#include "launcher/node_facts.h"

namespace muster::testing {
namespace {

int gpus(const GpuInventory& inventory, const std::string& devices) {
  return visible_gpus(inventory, &devices);
}

TEST_CASE("devices: CUDA_VISIBLE_DEVICES by number", "[unit][launcher]") {
  const GpuInventory four{.count = 4, .uuids = {}, .mig_uuids = {}};
  CHECK(visible_gpus(four, nullptr) == 4);
  CHECK(gpus(four, "") == 0);
  CHECK(gpus(four, "0") == 1);
  CHECK(gpus(four, "3, 1 ,2") == 3);
  CHECK(gpus(four, "1gpu2,2ampere") == 2);
  CHECK(gpus(four, "0,4,1") == 1);  // A missing GPU ends the list.
  CHECK(gpus(four, "0,-1,1") == 1);
  CHECK(gpus(four, "0,,1") == 1);
  CHECK(gpus(four, "0,x,1") == 1);
  CHECK(gpus(four, "-1") == 0);
  CHECK(gpus(four, "none") == 0);
  CHECK(gpus(four, "0,1,0") == 0);  // A repeated GPU makes all invisible.
  CHECK(gpus(four, "0,9,0") == 0);
  CHECK(gpus(four, "+2") == 1);
  CHECK(gpus(four, "99999999999999999999") == 0);
  CHECK(gpus({}, "0") == 0);
}

TEST_CASE("devices: CUDA_VISIBLE_DEVICES by UUID", "[unit][launcher]") {
  const GpuInventory three{
      .count = 3, .uuids = {"GPU-aa11", "GPU-aa22", "GPU-bb33"}, .mig_uuids = {}};
  CHECK(gpus(three, "GPU-aa11") == 1);
  CHECK(gpus(three, "GPU-b,GPU-aa2") == 2);
  CHECK(gpus(three, "GPU-b,GPU-a,GPU-aa11") == 1);  // The last prefix fits two GPUs.
  CHECK(gpus(three, "GPU-b,GPU-c,GPU-aa11") == 1);  // The second prefix fits no GPU.
  CHECK(gpus(three, "GPU-b,0,GPU-aa11") == 1);
  CHECK(gpus(three, "GPU-b,GPU-b") == 0);
  CHECK(gpus(three, "GPU-b,GPU-bb33") == 0);  // Both name the same GPU.
  CHECK(gpus(three, "0,GPU-b") == 1);
}

TEST_CASE("devices: CUDA shows one MIG device at most", "[unit][launcher]") {
  const GpuInventory mig{.count = 1, .uuids = {"GPU-a"}, .mig_uuids = {"MIG-1", "MIG-2", "MIG-3"}};
  CHECK(gpus(mig, "MIG-2") == 1);
  CHECK(gpus(mig, "MIG-1,MIG-3") == 1);
  CHECK(gpus(mig, "MIG-9") == 0);
}

TEST_CASE("devices: discrete XPUs go before integrated ones", "[unit][launcher]") {
  const XpuInventory both{.discrete = 2, .integrated = 1};
  const auto with_mask = [&both](const std::string& mask) { return visible_xpus(both, &mask); };
  CHECK(visible_xpus(both, nullptr) == 2);
  CHECK(visible_xpus({.discrete = 0, .integrated = 1}, nullptr) == 1);
  CHECK(with_mask("") == 2);
  CHECK(with_mask("1") == 1);
  CHECK(with_mask("0.0,0.1,1.0") == 2);
  CHECK(with_mask("7") == 0);
}

TEST_CASE("node facts: the facts of this machine", "[unit][launcher]") {
  const Environment environment = read_environment();
  const NodeFacts facts = node_facts(environment, "muster");
  CHECK(facts.cpus() >= 1);
  CHECK(facts.gpus() >= 0);
  CHECK(facts.xpus() >= 0);
  CHECK(facts.first_executable({"/bin", "/etc/passwd", "/bin/sh", "/bin/cat"}) == "/bin/sh");
  CHECK(facts.first_executable({"/bin", "/etc/passwd"}).empty());
  CHECK(facts.first_existing({"/nowhere", "/bin", "/etc/passwd"}) == "/bin");
  const std::string id = facts.new_run_id();
  REQUIRE(id.size() == 36);
  CHECK(id[14] == '4');
  CHECK(std::string("89ab").find(id[19]) != std::string::npos);
  CHECK(facts.new_run_id() != id);
  CHECK(terminal_width({{"COLUMNS", "100"}}) == 100);
  CHECK(terminal_width({{"COLUMNS", "3"}}) == 40);
}

}  // namespace
}  // namespace muster::testing
