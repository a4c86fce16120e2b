// The session for a run whose store a torchrun node hosts: a client of torchrun's c10d protocol.
//
// Differences from a torchrun node in the same place:
// - If the connection to the store is lost while workers run, the workers go on, and the session
//   connects again in the background. Only a new round needs the store.
// - Keep-alives have their own connection: a long wait on another connection does not let the other
//   nodes take this node for dead.
// - The session notices a closed run while workers run. If no node has reached the exit barrier, a
//   node has ended the run early, and the run is over.
// - If another node wants a new round while this node waits at the exit barrier, this node leaves
//   at once and does not delay it.
#pragma once

#include <memory>

#include <boost/asio/any_io_executor.hpp>

#include "agent/core/agent_options.h"
#include "agent/sessions/rendezvous_session.h"
#include "agent/sessions/round_exchange.h"

namespace muster {

/// Everything runs on `executor`, which one thread runs. Nothing happens before join(). `options`
/// must outlive the executor's tasks, and the handlers must live until close(). `host_store` may be
/// called again for each round. Its `done` may be called on any thread.
std::shared_ptr<RendezvousSession> make_c10d_session(boost::asio::any_io_executor executor,
                                                     const AgentOptions& options,
                                                     RendezvousSession::Handlers handlers,
                                                     Duration exit_barrier = kExitBarrier);

}  // namespace muster
