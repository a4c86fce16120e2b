// The hosts of --hosts and --hostfile.
//
// Pure. Everything in a list is bounded, and a name may have only the characters of host names,
// addresses and users: it becomes an argument of ssh.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/flag_error.h"

namespace muster {

struct JobHost {
  std::string target;        // For ssh: "gpu1", "me@gpu1", "fd00::1".
  std::optional<int> slots;  // Workers; nothing: the list does not say it.

  /// The name or address without the user.
  std::string name() const;
  bool operator==(const JobHost&) const = default;
};

inline constexpr std::size_t kMaxJobHosts = 1024;
inline constexpr int kMaxSlots = 4096;

/// "a:8,b:8", "me@a,b", "[fd00::1]:8". `flag`: for the error.
Checked<std::vector<JobHost>> parse_hosts(std::string_view text, const std::string& flag);
/// One host in each line: `a slots=8` as DeepSpeed and Open MPI write it, or `a:8` or `a`. A # and
/// what follows it is a comment. `file`: for the error.
Checked<std::vector<JobHost>> parse_hostfile(std::string_view text, const std::string& file);

}  // namespace muster
