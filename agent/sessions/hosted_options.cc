#include "agent/sessions/hosted_options.h"

#include <memory>

#include "rendezvous/net/c10d_allow.h"
#include "rendezvous/tls/tls_rules.h"

namespace muster {

SharedTlsRules host_tls_rules(const RendezvousOptions& rendezvous) {
  const auto& allow = rendezvous.tls_allow;
  return allow ? std::make_shared<TlsRules>(*allow) : nullptr;
}

StoreServerOptions hosted_store_options(const AgentOptions& options) {
  const RendezvousOptions& rendezvous = options.rendezvous;
  const RendezvousSettings& settings = rendezvous.settings;
  StoreServerOptions server;
  server.runs = RunServiceOptions{.muster_version = MUSTER_VERSION,
                                  .only_run = options.run_id,
                                  .setup = {.run = settings.run,
                                            .lease = settings.lease,
                                            .keep_alive_interval = settings.keep_alive_interval,
                                            .dead_after = settings.dead_after()}};
  server.token = rendezvous.token;
  server.tls = rendezvous.host_tls;
  server.tls_rules = host_tls_rules(rendezvous);
  if (const auto& allow = rendezvous.c10d_allow) server.c10d_allow = *allow;
  return server;
}

}  // namespace muster
