// Which rendezvous this node takes part in, by its options.
#pragma once

#include <memory>

#include <boost/asio/io_context.hpp>

#include "agent/core/agent_options.h"
#include "agent/sessions/rendezvous_session.h"
#include "rendezvous/net/store_server.h"

namespace muster {

std::shared_ptr<RendezvousSession> make_session(boost::asio::io_context& loop,
                                                const AgentOptions& options,
                                                RendezvousSession::Handlers handlers);

/// Where the store of this node's workers listens, when this node is rank 0.
StoreServerOptions workers_store_options(const AgentOptions& options);

}  // namespace muster
