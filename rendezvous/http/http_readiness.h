// The answer of /readyz: whether this server serves nodes and new runs. Pure.
#pragma once

#include <optional>

#include "rendezvous/http/http_metrics.h"
#include "rendezvous/http/http_route.h"

namespace muster::http {

/// Why this server is not ready. std::nullopt: it is ready. Every client may read the reason, so it
/// contains no names and no paths.
std::optional<RouteError> objection_to_readiness(const AllFigures& figures);

}  // namespace muster::http
