// Lists of host names as schedulers write them.
//
// Pure. Each list is bounded: a longer one is an error.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/flag_error.h"

namespace muster {

inline constexpr std::size_t kMaxHostListBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxHosts = std::size_t{1} << 16;

/// Expands Slurm's compressed form: "gpu[01-03,07],login" is gpu01, gpu02, gpu03, gpu07 and login.
/// A name may have several pairs of brackets. `variable`: for the error message.
Checked<std::vector<std::string>> expand_hostlist(std::string_view text,
                                                  const std::string& variable);

/// The words of the text, each once, in their order.
Checked<std::vector<std::string>> distinct_hosts(std::string_view text,
                                                 const std::string& variable);

}  // namespace muster
