// The worker that muster runs on each node for `musterctl doctor --nodes`. It tests the connection
// to every other node, and answers the tests of the others.
#pragma once

#include <string>
#include <string_view>

namespace muster::ctl {

struct DoctorPeerOptions {
  std::string python;     // A Python with torch; empty: no all-reduce.
  std::string no_python;  // Why there is no all-reduce.
  std::string torch;      // The versions that this node has found; empty: none.
  std::string nccl;
};

/// Prints each result on stdout as soon as it is known, for doctor_nodes.h: one line for this node,
/// one for each other node, and kAllTested; or kTestFailed and the reason. Returns the exit status.
/// It is 0 even if no connection works, because a failed worker would end the test for all nodes.
int run_doctor_peer(const DoctorPeerOptions& options);

inline constexpr std::string_view kAllTested = "all tested";
inline constexpr std::string_view kTestFailed = "failed: ";
inline constexpr std::string_view kThisNode = "this node: ";

}  // namespace muster::ctl
