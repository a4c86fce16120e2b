#include "launcher/devices.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "launcher/node_facts.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;

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

TEST_CASE("devices: AMD's GPUs by ROCR_VISIBLE_DEVICES, then by HIP's or CUDA's variable",
          "[unit][launcher]") {
  const GpuInventory four{.count = 4,
                          .uuids = {"GPU-a0", "GPU-b1", "GPU-c2", "GPU-d3"},
                          .pci_addresses = {"a", "b", "c", "d"}};
  using Names = std::vector<std::string>;
  const auto visible = [&four](const Environment& variables) {
    return visible_amd_gpus(four, variables).pci_addresses;
  };
  CHECK(visible({}) == Names{"a", "b", "c", "d"});
  CHECK(visible({{"ROCR_VISIBLE_DEVICES", "3,1,0"}}) == Names{"d", "b", "a"});
  CHECK(visible({{"ROCR_VISIBLE_DEVICES", "3,1,0"}, {"HIP_VISIBLE_DEVICES", "2,0"}}) ==
        Names{"a", "d"});
  CHECK(visible({{"HIP_VISIBLE_DEVICES", "1"}, {"CUDA_VISIBLE_DEVICES", "2"}}) == Names{"b"});
  CHECK(visible({{"CUDA_VISIBLE_DEVICES", "2"}}) == Names{"c"});
  CHECK(visible({{"ROCR_VISIBLE_DEVICES", "GPU-c2,GPU-a"}}) == Names{"c", "a"});
  CHECK(visible({{"HIP_VISIBLE_DEVICES", ""}}).empty());
}

class MadeUpMachine {
 public:
  MadeUpMachine() { fs::create_directories(root_ / "dev/dri"); }
  ~MadeUpMachine() { fs::remove_all(root_); }
  MadeUpMachine(const MadeUpMachine&) = delete;
  MadeUpMachine& operator=(const MadeUpMachine&) = delete;

  std::string path(const std::string& name) const { return root_ / name; }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  void add_kfd_node(int number, int render_minor, int simds, unsigned location) const {
    write("sys/class/kfd/kfd/topology/nodes/" + std::to_string(number) + "/properties",
          "cpu_cores_count 0\nsimd_count " + std::to_string(simds) + "\ndomain 1\nlocation_id " +
              std::to_string(location) + "\ndrm_render_minor " + std::to_string(render_minor) +
              "\nunique_id 2748\n");
  }
  void add_card(int number, const std::string& vendor, const std::string& address) const {
    const fs::path device = root_ / "sys/devices" / address;
    fs::create_directories(device);
    std::ofstream(device / "vendor") << vendor << "\n";
    const fs::path card = root_ / "sys/class/drm" / ("card" + std::to_string(number));
    fs::create_directories(card);
    fs::create_directory_symlink(device, card / "device");
  }

 private:
  fs::path root_ = fs::temp_directory_path() / ("muster_devices_" + std::to_string(::getpid()));
};

TEST_CASE("devices: AMD's GPUs are the nodes of the kernel's driver", "[unit][launcher]") {
  const MadeUpMachine machine;
  CHECK(find_amd_gpus(machine.path("sys"), machine.path("dev")).count == 0);
  machine.add_kfd_node(0, 0, 0, 0);  // The CPUs.
  machine.add_kfd_node(10, 130, 416, 0x0c00);
  machine.add_kfd_node(2, 129, 416, 0xc300);
  machine.add_kfd_node(3, 131, 416, 0x0510);  // Its device file is not in this container.
  machine.write("dev/dri/renderD129", "");
  machine.write("dev/dri/renderD130", "");
  const GpuInventory gpus = find_amd_gpus(machine.path("sys"), machine.path("dev"));
  CHECK(gpus.count == 2);
  CHECK(gpus.pci_addresses == std::vector<std::string>{"0001:c3:00.0", "0001:0c:00.0"});
  CHECK(gpus.uuids.at(0) == "GPU-0000000000000abc");
  machine.write("dev/dri/renderD131", "");
  CHECK(find_amd_gpus(machine.path("sys"), machine.path("dev")).pci_addresses.at(1) ==
        "0001:05:02.0");
}

TEST_CASE("devices: Intel's cards are sorted by their addresses", "[unit][launcher]") {
  const MadeUpMachine machine;
  machine.add_card(0, "0x8086", "0000:9a:00.0");
  machine.add_card(1, "0x10de", "0000:07:00.0");
  machine.add_card(2, "0x8086", "0000:00:02.0");
  machine.add_card(10, "0x8086", "0000:18:00.0");
  const XpuInventory cards = find_intel_cards(machine.path("sys"));
  CHECK(cards.discrete == 2);
  CHECK(cards.integrated == 1);
  CHECK(cards.discrete_addresses == std::vector<std::string>{"0000:18:00.0", "0000:9a:00.0"});
  CHECK(cards.integrated_addresses == std::vector<std::string>{"0000:00:02.0"});
  const std::string mask = "1.0,1.1";
  CHECK(visible_xpu_numbers(cards, &mask) == std::vector<int>{1});
}

}  // namespace
}  // namespace muster::testing
