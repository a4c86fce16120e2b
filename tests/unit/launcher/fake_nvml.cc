// A libnvidia-ml.so.1 for tests: two GPUs, the second with two MIG devices.
#include <cstdio>

namespace {
int devices[4];  // The elements' addresses are the handles: GPU 0, GPU 1, MIG 0, MIG 1.
bool is_started = false;
constexpr const char* kUuids[] = {"GPU-first", "GPU-second", "MIG-one", "MIG-two"};
constexpr int kNotFound = 6;       // NVML_ERROR_NOT_FOUND
constexpr int kUninitialized = 1;  // NVML_ERROR_UNINITIALIZED
// nvmlPciInfo_t of nvml.h, CUDA 12. Not shared with nvml.cc, so that a mistake there shows.
struct PciInfo {
  char legacy_bus_id[16];
  unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
}  // namespace

extern "C" {
// The functions have NVML's names.
// NOLINTBEGIN(readability-identifier-naming)
int nvmlInit_v2() {
  is_started = true;
  return 0;
}
int nvmlShutdown() {
  is_started = false;
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = 2;
  return is_started ? 0 : kUninitialized;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) {
  if (index >= 2) return kNotFound;
  *device = &devices[index];
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned int size) {
  const auto index = static_cast<int*>(device) - devices;
  std::snprintf(text, size, "%s", kUuids[index]);
  return 0;
}
int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* info) {
  *info = {};
  info->domain = device == &devices[0] ? 0 : 0x10000;
  info->bus = 0xdc;
  info->device = 3;
  return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void* device, unsigned int* count) {
  *count = device == &devices[1] ? 7 : 0;
  return 0;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void* device, unsigned int index, void** part) {
  if (device != &devices[1] || index >= 2) return kNotFound;
  *part = &devices[2 + index];
  return 0;
}
// NOLINTEND(readability-identifier-naming)
}
