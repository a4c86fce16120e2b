// The rendezvous that this node hosts: its run, and who may come to it.
#pragma once

#include "agent/core/agent_options.h"
#include "rendezvous/net/store_server.h"

namespace muster {

/// --rdzv-tls-allow; null without it.
SharedTlsRules host_tls_rules(const RendezvousOptions& rendezvous);

/// Serves this run only. Port and addresses are the caller's to choose.
StoreServerOptions hosted_store_options(const AgentOptions& options);

}  // namespace muster
