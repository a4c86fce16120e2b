// The key of a rendezvous' state, and what may be written under it while no run is known there.
//
// torchrun nodes unpickle whatever lies under that key. So nothing that Python could take for a
// pickle is kept there: a state belongs to a run, and the run service encodes it anew.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/core/store_request.h"

namespace muster {

/// In front of a run id: the key of its state, as it is on the wire.
inline constexpr std::string_view kStateKeyPrefix = "/torch.rendezvous.";

/// Whether a torchrun node of some run reads its state here. Keys of a round
/// ("PREFIX RUN.ROUND/…") are not: a run id of that shape is refused.
bool is_state_key(std::string_view key);

/// Whether Python's unpickler stops at the first byte of the text's base64, whatever follows and
/// whatever is appended to the text. True also of texts without any base64 in them.
bool cannot_be_pickle(std::string_view text);

/// Why the store must not carry out a request that writes; nothing: it may.
std::optional<std::string> refuse_planted_pickle(const Request& request);

}  // namespace muster
