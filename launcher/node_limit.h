// The most nodes that a job may have, whoever says how many: a flag or a scheduler.
//
// Pure.
#pragma once

#include <cstdint>

namespace muster {

inline constexpr std::int64_t kMaxNodes = 1'000'000;

}  // namespace muster
