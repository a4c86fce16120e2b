// --rdzv-backend static: torchrun's protocol without a rendezvous. Every node has its rank from the
// command line, node rank 0 hosts the one store at the endpoint, the workers use the same store.
//
// As under torchrun a failure restarts the workers of this node only, the other nodes learn nothing
// of it, and restarted workers find the keys of the last attempt: whoever wants restarts across
// nodes takes the c10d backend. What differs:
// - the exit barrier ends at once for a node that is told to go;
// - waits say for which nodes, and whoever hosts does not wait blindly for a number of connections.
#pragma once

#include <memory>

#include <boost/asio/any_io_executor.hpp>

#include "agent/core/agent_options.h"
#include "agent/sessions/rendezvous_session.h"
#include "agent/sessions/round_exchange.h"

namespace muster {

/// Everything happens on `executor`, which one thread runs; the store of node rank 0 has a thread
/// of its own and serves until the session is destroyed. Of the handlers, on_restart and
/// host_store are never called. `options` must outlive the executor's tasks.
std::shared_ptr<RendezvousSession> make_static_session(boost::asio::any_io_executor executor,
                                                       const AgentOptions& options,
                                                       RendezvousSession::Handlers handlers,
                                                       Duration exit_barrier = kExitBarrier);

}  // namespace muster
