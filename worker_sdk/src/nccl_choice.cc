#include "nccl_choice.h"

#include <charconv>
#include <utility>

namespace muster {

// Source: _register_builtin_nccl_backend() in torch/distributed/distributed_c10d.py of 2.13.0,
// 2.14.1 and 2.15.0. tests/conformance/releases compares this function with them.
NcclClass choose_nccl(TorchRelease torch, std::optional<std::string_view> use_nccl2) {
  const auto release = std::pair(torch.major, torch.minor);
  if (release < std::pair(2, 14)) return NcclClass::ProcessGroupNCCL;
  const bool nccl2 = release == std::pair(2, 14) ? use_nccl2 == "1" : use_nccl2 != "0";
  return nccl2 ? NcclClass::ProcessGroupNCCL2 : NcclClass::ProcessGroupNCCL;
}

bool nccl2_binds_a_device(TorchRelease torch) {
  return std::pair(torch.major, torch.minor) >= std::pair(2, 15);
}

int recorder_entries(std::optional<std::string_view> buffer_size,
                     std::optional<std::string_view> nccl_buffer_size) {
  constexpr int kDefault = 2000;  // torch/distributed/distributed_c10d.py of 2.15.0.
  for (const auto& text : {buffer_size, nccl_buffer_size}) {
    if (!text || text->empty()) continue;
    int entries = kDefault;
    std::from_chars(text->data(), text->data() + text->size(), entries);
    return entries;
  }
  return kDefault;
}

}  // namespace muster
