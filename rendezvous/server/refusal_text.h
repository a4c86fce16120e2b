// The log's words for a refusal of the store.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/store/store_limits.h"
#include "rendezvous/store/store_request.h"

namespace muster {

/// The kind of refusal, for the log's limiter. Has static lifetime.
std::string_view to_cause(Refusal refusal);
std::string describe(Refusal refusal, const StoreLimits& limits);

}  // namespace muster
