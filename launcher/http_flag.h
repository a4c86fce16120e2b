// --http: what goes on in a run, shown by the muster that hosts its rendezvous.
#pragma once

#include "agent/core/agent_options.h"
#include "launcher/flag_error.h"
#include "launcher/flags.h"

namespace muster {

/// Checks the address, and makes a node that would meet only itself the host of its run.
Checked<void> plan_http(const Flags& flags, AgentOptions& plan);
/// Once the token is known: others than this machine's users must not get in without one.
Checked<void> check_http_access(const Flags& flags, const RendezvousOptions& rendezvous);

}  // namespace muster
