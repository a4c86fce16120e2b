// What the other nodes must run, for a node that waits for them.
//
// Pure.
#pragma once

#include <string>
#include <string_view>

#include "agent/core/agent_options.h"

namespace muster {

/// Whether this host name or address means each machine itself. No name is looked up.
bool is_own_machine(std::string_view host);

/// "each missing node runs the same command with --rdzv-endpoint=node0:29400", and what is wrong
/// with that address if other machines cannot use it.
std::string waiting_advice(const AgentOptions& options);

}  // namespace muster
