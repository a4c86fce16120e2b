// Asks `musterctl doctor` whether this machine is fit for a job, before it joins other nodes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muster {

struct Preflight {
  std::string failure;                // Why the node must not take part; empty: it may.
  std::vector<std::string> warnings;  // What the user may want to know.
};

/// Runs `program`, a musterctl, with `doctor --quick --json`, and waits for it for at most 30 s.
Preflight run_preflight(const std::string& program, const std::vector<std::string>& environment);

/// What the doctor's answer means. Pure.
Preflight read_preflight(std::string_view json);

}  // namespace muster
