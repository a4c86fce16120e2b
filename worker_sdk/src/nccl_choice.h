// Which of PyTorch's two NCCL backends the name "nccl" means. Pure. Private.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace muster {

enum class NcclClass : std::uint8_t {
  ProcessGroupNCCL,   // c10d::ProcessGroupNCCL: the only one up to 2.13.
  ProcessGroupNCCL2,  // c10d::nccl2::ProcessGroupNCCL.
};

/// The variable that chooses between the two classes.
inline constexpr const char* kUseNccl2 = "TORCH_DIST_USE_NCCL2";

struct TorchRelease {
  int major = 0;
  int minor = 0;
};

/// The class that Python's init_process_group("nccl") makes with this release of torch. The two
/// classes use other keys of the store and cannot meet, so all ranks of a job need the same one.
/// `use_nccl2`: the value of kUseNccl2, empty if it is not set.
NcclClass choose_nccl(TorchRelease torch, std::optional<std::string_view> use_nccl2);

/// Whether Python binds a ProcessGroupNCCL2 to a GPU, and so connects it at once, also if the
/// caller names no GPU.
bool nccl2_binds_a_device(TorchRelease torch);

/// How many operations PyTorch's flight recorder keeps: the first variable that is set and not
/// empty counts. 0: it is switched off.
int recorder_entries(std::optional<std::string_view> buffer_size,
                     std::optional<std::string_view> nccl_buffer_size);

}  // namespace muster
