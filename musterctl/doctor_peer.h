// What `musterctl doctor --nodes` runs on each node as muster's worker: this node tests its way to
// every other one, and answers those that test theirs.
#pragma once

#include <string>
#include <string_view>

namespace muster::ctl {

struct DoctorPeerOptions {
  std::string python;     // With torch; empty: there is no all-reduce.
  std::string no_python;  // Why not.
  std::string torch;      // Versions, as the node has found them; empty: none.
  std::string nccl;
};

/// Prints its results on stdout as it finds them, for doctor_nodes.h: a line for this node, one for
/// each other one, and kAllTested; or kTestFailed and why. Returns the exit status: 0 even if
/// nothing works between the nodes, as a worker that fails would end the test for all of them.
int run_doctor_peer(const DoctorPeerOptions& options);

inline constexpr std::string_view kAllTested = "all tested";
inline constexpr std::string_view kTestFailed = "failed: ";
inline constexpr std::string_view kThisNode = "this node: ";

}  // namespace muster::ctl
