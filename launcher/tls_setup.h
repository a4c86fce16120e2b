// --rdzv-tls-ca, --rdzv-tls-cert, --rdzv-tls-key and --rdzv-tls-allow: which of them go together.
//
// Pure: the files are read later.
#pragma once

#include "agent/core/agent_options.h"
#include "launcher/flag_error.h"
#include "launcher/flags.h"

namespace muster {

/// `rendezvous` has its backend already.
Checked<void> plan_tls(const Flags& flags, RendezvousOptions& rendezvous);

}  // namespace muster
