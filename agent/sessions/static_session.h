// --rdzv-backend static: torchrun's protocol without a rendezvous. Every node has its rank from the
// command line. Node rank 0 hosts one store at the endpoint, and the workers use the same store.
//
// As under torchrun, a failure restarts the workers of this node only, the other nodes do not learn
// of it, and restarted workers find the keys of the last attempt. For restarts across nodes there
// is the c10d backend. Differences from torchrun:
// - a node that is stopped leaves the exit barrier at once;
// - each wait names the missing nodes, and node rank 0 does not wait for a number of connections.
#pragma once

#include <memory>

#include <boost/asio/any_io_executor.hpp>

#include "agent/core/agent_options.h"
#include "agent/sessions/rendezvous_session.h"
#include "agent/sessions/round_exchange.h"

namespace muster {

/// Everything runs on `executor`, which one thread runs. The store of node rank 0 has its own
/// thread and serves until the session is destroyed. The handlers on_restart and host_store are
/// never called. `options` must outlive the executor's tasks.
std::shared_ptr<RendezvousSession> make_static_session(boost::asio::any_io_executor executor,
                                                       const AgentOptions& options,
                                                       RendezvousSession::Handlers handlers,
                                                       Duration exit_barrier = kExitBarrier);

}  // namespace muster
