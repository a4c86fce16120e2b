// `musterctl doctor --nodes N`: starts muster, by which this node meets the others, and reads the
// results of the tests between them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "musterctl/doctor_peer.h"
#include "musterctl/peer_checks.h"
#include "rendezvous/tls/tls_pump.h"

namespace muster::ctl {

/// A rendezvous accepts no more nodes.
inline constexpr int kMaxDoctorNodes = 1 << 14;

struct NodesRequest {
  int nodes = 0;
  std::string endpoint;  // As the user gave it.
  std::string run;
  std::string local_addr;  // Empty: muster finds the address.
  std::string token_file;
  TlsFiles tls;           // For the rendezvous.
  bool no_torch = false;  // The user wants no all-reduce.
  DoctorPeerOptions peer;
};

/// The command line of muster, which starts `musterctl doctor-peer`. Both programs are in `folder`.
std::vector<std::string> muster_words(const NodesRequest& request, const std::string& folder);
/// The environment for muster: without variables that are options of muster, except for options of
/// the rendezvous.
std::vector<std::string> muster_environment(std::vector<std::string> variables);

/// Updates `facts` by one line that `doctor-peer` has printed. When `doctor-peer` starts again, its
/// first line clears the earlier results.
void handle_line(std::string_view line, PairFacts& facts);

/// Waits until all nodes have met and tested each other, and returns this node's results.
PairFacts test_nodes(const NodesRequest& request);

}  // namespace muster::ctl
