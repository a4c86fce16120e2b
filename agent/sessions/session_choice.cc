#include "agent/sessions/session_choice.h"

#include <algorithm>
#include <utility>

#include "agent/sessions/etcd_session.h"
#include "agent/sessions/local_session.h"
#include "agent/sessions/network_session.h"
#include "agent/sessions/static_session.h"
#include "base/net/own_addresses.h"
#include "rendezvous/server/server_limits.h"

namespace muster {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

/// Whether --master-addr and --master-port give the store's address.
bool has_fixed_address(const RendezvousOptions& rendezvous) {
  return !rendezvous.standalone && rendezvous.backend == RendezvousBackend::Static;
}

bool is_alone(const AgentOptions& options) {
  const RendezvousOptions& rendezvous = options.rendezvous;
  if (rendezvous.standalone) return rendezvous.http.empty();
  const bool in_a_file = rendezvous.settings.store_type == RendezvousSettings::StoreType::File;
  return options.max_nodes == 1 && (has_fixed_address(rendezvous) || in_a_file);
}

/// The store's address on the only node of a job: loopback, unless the user named an address.
std::string own_master_addr(const RendezvousOptions& rendezvous) {
  if (has_fixed_address(rendezvous)) return rendezvous.host;
  return rendezvous.local_addr.empty() ? kLoopback : rendezvous.local_addr;
}

}  // namespace

std::shared_ptr<RendezvousSession> make_session(boost::asio::io_context& loop,
                                                const AgentOptions& options,
                                                RendezvousSession::Handlers handlers) {
  const RendezvousOptions& rendezvous = options.rendezvous;
  if (!is_alone(options) && rendezvous.backend == RendezvousBackend::Static)
    return make_static_session(loop.get_executor(), options, std::move(handlers));
  if (!is_alone(options) && rendezvous.backend == RendezvousBackend::Etcd)
    return std::make_unique<EtcdSession>(loop, options, std::move(handlers));
  if (!is_alone(options))
    return std::make_unique<NetworkSession>(loop, options, std::move(handlers));
  return std::make_unique<LocalSession>(loop.get_executor(), std::move(handlers),
                                        options.local_world_size,
                                        own_master_addr(options.rendezvous));
}

std::size_t most_workers(const AgentOptions& options) {
  return static_cast<std::size_t>(std::max(options.max_nodes, 1)) *
         static_cast<std::size_t>(std::max(options.local_world_size, 1));
}

StoreServerOptions workers_store_options(const AgentOptions& options) {
  StoreServerOptions store;
  store.limits = limits_of_one_job(most_workers(options));
  if (!is_alone(options)) {
    store.token = options.rendezvous.token;
    store.token_run = options.run_id;
    // Nodes are introduced to this store by their token: without one, it knows no members.
    const auto& allow = options.rendezvous.c10d_allow;
    if (allow && (options.rendezvous.token || !allow->members)) store.c10d_allow = *allow;
    if (!options.rendezvous.standalone) return store;
  }
  if (has_fixed_address(options.rendezvous)) store.port = options.rendezvous.port;
  if (own_master_addr(options.rendezvous) != kLoopback) return store;
  // A script may use any address of this machine, as under torchrun, but nobody else needs to. An
  // agent with --http, which promises to be on loopback only, has no other port outside.
  if (options.rendezvous.http.empty())
    store.admit = only_this_machine();
  else
    store.addresses = {kLoopback};
  return store;
}

}  // namespace muster
