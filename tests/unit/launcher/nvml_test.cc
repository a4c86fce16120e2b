// find_gpus() with the library of fake_nvml.cc in LD_LIBRARY_PATH.
#include <catch2/catch.hpp>

#include "launcher/devices.h"

namespace muster::testing {
namespace {

TEST_CASE("devices: NVML is asked for GPUs and their parts", "[unit][launcher]") {
  const GpuInventory gpus = find_gpus();
  CHECK(gpus.count == 2);
  CHECK(gpus.uuids == std::vector<std::string>{"GPU-first", "GPU-second"});
  CHECK(gpus.mig_uuids == std::vector<std::string>{"MIG-one", "MIG-two"});
  CHECK(count_gpus({}) == 2);
  CHECK(count_gpus({{"CUDA_VISIBLE_DEVICES", "GPU-sec"}}) == 1);
  CHECK(count_gpus({{"CUDA_VISIBLE_DEVICES", "MIG-two"}}) == 1);
  CHECK(count_gpus({{"CUDA_VISIBLE_DEVICES", "MIG-three"}}) == 0);
  CHECK(count_gpus({{"CUDA_VISIBLE_DEVICES", "1,0,2"}}) == 2);
  CHECK(count_gpus({{"CUDA_VISIBLE_DEVICES", ""}}) == 0);
}

}  // namespace
}  // namespace muster::testing
