// Recognises the keys of a store that belong to a run: its state, and the exchange of a round.
#pragma once

#include <string_view>

#include "rendezvous/store/store_request.h"

namespace muster {

/// The state key ("/torch.rendezvous.RUN") of the run that `key` belongs to. It is a part of `key`:
/// the whole key, or the part before ".ROUND/...". Empty if `key` belongs to no run.
std::string_view run_of_key(std::string_view key);
/// The run of the request's first key. Empty if that key belongs to no run.
std::string_view run_of_request(const Request& request);

}  // namespace muster
