// What /readyz says: whether nodes and new runs are served here. Pure.
#pragma once

#include <optional>

#include "rendezvous/http/http_metrics.h"
#include "rendezvous/http/http_route.h"

namespace muster::http {

/// Why this server is not ready; nothing: it is. Anybody may read it: no names and no paths.
std::optional<RouteError> objection_to_readiness(const AllFigures& figures);

}  // namespace muster::http
