// A libnvidia-ml.so.1 for tests: two GPUs. The first is healthy and does not support the functions
// that older GPUs lack. The second is hot, has memory errors, and rows that wait for a reset.

namespace {
int devices[2];                            // The elements' addresses are the handles.
constexpr int kNoSuchArgument = 2;         // NVML_ERROR_INVALID_ARGUMENT
constexpr int kNoSupport = 3;              // NVML_ERROR_NOT_SUPPORTED
constexpr int kNameTooLong = 7;            // NVML_ERROR_INSUFFICIENT_SIZE
constexpr unsigned long long kHot = 0x40;  // nvmlClocksThrottleReasonHwThermalSlowdown
bool is_second(void* device) {
  return device == &devices[1];
}
}  // namespace

extern "C" {
// The functions have NVML's names.
// NOLINTBEGIN(readability-identifier-naming)
int nvmlInit_v2() {
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) {
  if (index >= 2) return kNoSuchArgument;
  *device = &devices[index];
  return 0;
}
int nvmlDeviceGetName(void* device, char* text, unsigned int size) {
  if (size < 7) return kNameTooLong;
  for (const char* name = is_second(device) ? "second" : "first"; (*text++ = *name++) != 0;)
    continue;
  return 0;
}
int nvmlDeviceGetTotalEccErrors(void* device, int type, int counter, unsigned long long* errors) {
  if (!is_second(device)) return kNoSupport;
  *errors = type == 1 && counter == 0 ? 3 : 77;  // Uncorrected, since the driver was loaded.
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
  *reasons = is_second(device) ? kHot : 1;  // 1: the GPU is idle.
  return 0;
}
int nvmlDeviceGetRemappedRows(void* device, unsigned int* corrected, unsigned int* uncorrected,
                              unsigned int* pending, unsigned int* failed) {
  if (!is_second(device)) return kNoSupport;
  *corrected = *uncorrected = 1;
  *pending = 1;
  *failed = 0;
  return 0;
}
// NOLINTEND(readability-identifier-naming)
}
