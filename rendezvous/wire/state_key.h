// The key of a rendezvous' state, and the values that are allowed there while no run is known.
//
// torchrun nodes unpickle any value of that key. So the store keeps no value there that Python
// could take for a pickle. A state belongs to a run, and the run service encodes it anew.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/core/store_request.h"

namespace muster {

/// The key of a state is this prefix and the run id, as on the wire.
inline constexpr std::string_view kStateKeyPrefix = "/torch.rendezvous.";

/// Whether torchrun nodes of a run may read their state under this key. False for keys of a round
/// ("PREFIX RUN.ROUND/…"): a run id of that form is refused.
bool is_state_key(std::string_view key);

/// Whether Python's unpickler stops at the first byte of the text's base64, whatever follows and
/// whatever is appended to the text. Also true for texts without base64.
bool cannot_be_pickle(std::string_view text);

/// Why the store must refuse this writing request; empty: the store may apply it.
std::optional<std::string> refuse_planted_pickle(const Request& request);

}  // namespace muster
