// Carries out what a run's rendezvous wants done: messages, held answers, keys, lines in the log.
#pragma once

#include <functional>
#include <optional>

#include "rendezvous/net/connection.h"

namespace muster {

/// By number; nothing if it is closed.
using Connections = std::function<Connection*(ConnectionId)>;

/// Does it. Returns whose connection has been touched, if one has: the loop looks after it.
std::optional<ConnectionId> carry_out(const RunEffect& effect, ConnectionShared& shared,
                                      const Connections& connection);

}  // namespace muster
