// Asks the hosts of a rendezvous which state they have, as a node asks them when it begins.
#pragma once

#include <string>
#include <vector>

#include "musterctl/doctor.h"
#include "musterctl/http_text.h"
#include "rendezvous/access/token_proof.h"
#include "rendezvous/node/known_host.h"

namespace muster::ctl {

/// An endpoint and its numeric addresses, at each of which may be a host.
struct HostPlaces {
  Endpoint endpoint;
  std::vector<std::string> addresses;
};
/// How a node introduces itself.
struct HostQuestion {
  std::string run;
  SharedTokenCrypto token = {};  // Null: none.
  TlsFiles tls = {};             // Empty: plain TCP.
};

/// Asks all places at once, for some seconds. Hosts that do not say which state they have, such as
/// torchrun's, and hosts that refuse this machine are left out.
std::vector<MetHost> ask_hosts(const std::vector<HostPlaces>& places, const HostQuestion& question);

}  // namespace muster::ctl
