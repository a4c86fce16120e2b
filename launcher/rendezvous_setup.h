// What the flags say beyond where nodes meet: etcd's own settings, TLS, and HTTP.
//
// Pure: files are read later. RendezvousOptions have their backend already.
#pragma once

#include <map>
#include <string>

#include "agent/core/agent_options.h"
#include "launcher/flag_error.h"
#include "launcher/flags.h"

namespace muster {

/// --rdzv-backend etcd and etcd-v2: takes the settings of etcd out of `conf`; what stays is the
/// rendezvous'. `flag` is how to name --rdzv-conf in an error.
Checked<void> plan_etcd(std::map<std::string, std::string>& conf, RendezvousOptions& rendezvous,
                        const std::string& flag);

/// --rdzv-tls-ca, --rdzv-tls-cert, --rdzv-tls-key and --rdzv-tls-allow: which of them go together.
Checked<void> plan_tls(const Flags& flags, RendezvousOptions& rendezvous);

/// --http, what goes on in a run, shown by the muster that hosts its rendezvous: checks the
/// address, and makes a node that would meet only itself the host of its run.
Checked<void> plan_http(const Flags& flags, AgentOptions& plan);
/// Once the token is known: others than this machine's users must not get in without one.
Checked<void> check_http_access(const Flags& flags, const RendezvousOptions& rendezvous);

}  // namespace muster
