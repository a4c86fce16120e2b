// The rendezvous of a run whose store a torchrun node hosts: torchrun's c10d protocol as a client.
//
// What differs from a torchrun node in the same place:
// - the connection with the store may be lost while workers run: they go on, and the session
//   connects again in the background; only a new round needs the store;
// - keep-alives have a connection of their own, so that no wait makes the others take us for dead;
// - a closed run is noticed while workers run: if no node had come to the exit barrier, a node has
//   given up, and the run is over;
// - in the exit barrier, a node that wants another round is not held up: this one leaves.
#pragma once

#include <memory>

#include <boost/asio/any_io_executor.hpp>

#include "agent/core/agent_options.h"
#include "agent/sessions/rendezvous_session.h"
#include "agent/sessions/round_exchange.h"

namespace muster {

/// Everything happens on `executor`, which one thread runs, and nothing before join(). `options`
/// must outlive the executor's tasks, the handlers must live until close(). `host_store` may be
/// called again for each round, and its `done` on any thread.
std::shared_ptr<RendezvousSession> make_c10d_session(boost::asio::any_io_executor executor,
                                                     const AgentOptions& options,
                                                     RendezvousSession::Handlers handlers,
                                                     Duration exit_barrier = kExitBarrier);

}  // namespace muster
