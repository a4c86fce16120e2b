// --rdzv-backend etcd and etcd-v2: what --rdzv-conf says of etcd itself.
//
// Pure. `flag` is how to name --rdzv-conf in an error.
#pragma once

#include <map>
#include <string>

#include "agent/core/agent_options.h"
#include "launcher/flag_error.h"

namespace muster {

/// Takes the settings of etcd out of `conf`; what stays is the rendezvous'.
Checked<void> plan_etcd(std::map<std::string, std::string>& conf, RendezvousOptions& rendezvous,
                        const std::string& flag);

}  // namespace muster
