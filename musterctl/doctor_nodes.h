// `musterctl doctor --nodes N`: brings this node together with the others, by muster, and reads
// what they have found out about each other.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "musterctl/doctor_peer.h"
#include "musterctl/peer_checks.h"
#include "rendezvous/tls/tls_pump.h"

namespace muster::ctl {

/// A rendezvous takes no more.
inline constexpr int kMaxDoctorNodes = 1 << 14;

struct NodesRequest {
  int nodes = 0;
  std::string endpoint;  // As it was given.
  std::string run;
  std::string local_addr;  // Empty: muster finds it.
  std::string token_file;
  TlsFiles tls;  // For the rendezvous.
  DoctorPeerOptions peer;
};

/// The words that start muster, which starts `musterctl doctor-peer`: both are in `folder`.
std::vector<std::string> muster_words(const NodesRequest& request, const std::string& folder);
/// What muster gets of this environment: none of its options, but for those of the rendezvous.
std::vector<std::string> muster_environment(std::vector<std::string> variables);

/// Takes in what `doctor-peer` prints, line by line. A node that starts anew begins anew.
void take_line(std::string_view line, PairFacts& facts);

/// Waits until all nodes are there and have tested each other.
PairFacts ask_nodes(const NodesRequest& request);

}  // namespace muster::ctl
