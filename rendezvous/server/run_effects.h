// Applies the effects of the run service: messages, held answers, changes of keys, log lines.
#pragma once

#include <functional>
#include <optional>

#include "rendezvous/server/connection.h"

namespace muster {

/// Finds a connection by its number. Null if it is closed.
using Connections = std::function<Connection*(ConnectionId)>;

/// Applies one effect. Returns the connection that it has changed, if any: the caller must update
/// the events that it is watched for.
std::optional<ConnectionId> apply(const RunEffect& effect, ConnectionShared& shared,
                                  const Connections& connection);

}  // namespace muster
