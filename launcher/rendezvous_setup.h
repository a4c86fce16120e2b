// Plans the parts of the rendezvous other than its endpoint: etcd's own settings, TLS, and HTTP.
//
// Pure: files are read later. The backend in RendezvousOptions must be set already.
#pragma once

#include <map>
#include <string>

#include "agent/core/agent_options.h"
#include "launcher/flag_error.h"
#include "launcher/flags.h"

namespace muster {

/// For --rdzv-backend etcd and etcd-v2: moves the settings of etcd from `conf` to `rendezvous`. The
/// rest of `conf` are settings of the rendezvous. `flag` is --rdzv-conf's name for error messages.
Checked<void> plan_etcd(std::map<std::string, std::string>& conf, RendezvousOptions& rendezvous,
                        const std::string& flag);

/// Plans --rdzv-tls-ca, --rdzv-tls-cert, --rdzv-tls-key and --rdzv-tls-allow, and checks that the
/// given ones are complete.
Checked<void> plan_tls(const Flags& flags, RendezvousOptions& rendezvous);

/// Plans --http, by which the muster that hosts the rendezvous shows the run. Checks the address.
/// A standalone node, which has no rendezvous otherwise, becomes the host of its own.
Checked<void> plan_http(const Flags& flags, AgentOptions& plan);
/// Checks --http after the token is loaded: an address that other machines reach requires a token.
Checked<void> check_http_access(const Flags& flags, const RendezvousOptions& rendezvous);

}  // namespace muster
