// Tests find_gpus() with the library of fake_nvml.cc in LD_LIBRARY_PATH.
#include <catch2/catch.hpp>

#include "launcher/devices.h"

namespace muster::testing {
namespace {

TEST_CASE("devices: NVML is asked for GPUs and their parts", "[unit][launcher]") {
  const GpuInventory gpus = find_gpus();
  CHECK(gpus.count == 2);
  CHECK(gpus.uuids == std::vector<std::string>{"GPU-first", "GPU-second"});
  CHECK(gpus.mig_uuids == std::vector<std::string>{"MIG-one", "MIG-two"});
  CHECK(gpus.mig_gpus == std::vector<int>{1, 1});
  CHECK(gpus.pci_addresses == std::vector<std::string>{"0000:dc:03.0", "10000:dc:03.0"});
  CHECK(count_gpus({}) == 2);
  CHECK(count_gpus({{"CUDA_VISIBLE_DEVICES", "GPU-sec"}}) == 1);
  CHECK(count_gpus({{"CUDA_VISIBLE_DEVICES", "MIG-two"}}) == 1);
  CHECK(count_gpus({{"CUDA_VISIBLE_DEVICES", "MIG-three"}}) == 0);
  CHECK(count_gpus({{"CUDA_VISIBLE_DEVICES", "1,0,2"}}) == 2);
  CHECK(count_gpus({{"CUDA_VISIBLE_DEVICES", ""}}) == 0);
}

TEST_CASE("devices: the visible GPUs are numbered in CUDA's order", "[unit][launcher]") {
  const GpuInventory gpus = find_gpus();
  const auto visible = [&gpus](const std::string& devices) {
    return visible_gpu_numbers(gpus, &devices);
  };
  CHECK(visible_gpu_numbers(gpus, nullptr) == std::vector<int>{0, 1});
  CHECK(visible("1,0,2") == std::vector<int>{1, 0});
  CHECK(visible("GPU-second,GPU-first") == std::vector<int>{1, 0});
  CHECK(visible("MIG-two,MIG-one") == std::vector<int>{1});
  CHECK(visible("1,1").empty());
  CHECK(visible("").empty());
}

}  // namespace
}  // namespace muster::testing
