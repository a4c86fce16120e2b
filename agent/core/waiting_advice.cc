#include "agent/core/waiting_advice.h"

namespace muster {

bool is_own_machine(std::string_view host) {
  return host == "localhost" || host.ends_with(".localhost") || host == "ip6-localhost" ||
         host == "ip6-loopback" || host.starts_with("127.") || host == "::1";
}

std::string waiting_advice(const AgentOptions& options) {
  const RendezvousOptions& rendezvous = options.rendezvous;
  const bool is_static = rendezvous.backend == RendezvousBackend::Static;
  std::string text = "each missing node runs the same command with ";
  if (is_static)
    text.append("its own --node-rank, --master-addr=")
        .append(rendezvous.host)
        .append(" and --master-port=")
        .append(std::to_string(rendezvous.port));
  else
    text.append("--rdzv-endpoint=")
        .append(rendezvous.endpoint)
        .append(" and --rdzv-id=")
        .append(options.run_id);
  if (rendezvous.backend != RendezvousBackend::Etcd && is_own_machine(rendezvous.host))
    text.append("; ").append(rendezvous.host) +=
        " means this machine alone, so no other machine can come: give all nodes the first node's "
        "address";
  return text;
}

}  // namespace muster
