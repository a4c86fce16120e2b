// Chooses the rendezvous session from the agent's options.
#pragma once

#include <cstddef>
#include <memory>

#include <boost/asio/io_context.hpp>

#include "agent/core/agent_options.h"
#include "agent/sessions/rendezvous_session.h"
#include "rendezvous/server/store_server.h"

namespace muster {

std::shared_ptr<RendezvousSession> make_session(boost::asio::io_context& loop,
                                                const AgentOptions& options,
                                                RendezvousSession::Handlers handlers);

/// Where the workers' store of this node listens if this node is rank 0, and who may use it.
/// The workers of the job, if all of its nodes have as many as this one.
std::size_t most_workers(const AgentOptions& options);

StoreServerOptions workers_store_options(const AgentOptions& options);

}  // namespace muster
