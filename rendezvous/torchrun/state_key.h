// The key of a rendezvous' state, and the values that are allowed there while no run is known.
//
// torchrun nodes unpickle any value of that key. So the store keeps no value there that Python
// could take for a pickle. All other values, which only make unpickling fail, are kept as at
// torch's server. A state belongs to a run, and the run service encodes it anew.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/store/store_request.h"

namespace muster {

/// The key of a state is this prefix and the run id, as on the wire.
inline constexpr std::string_view kStateKeyPrefix = "/torch.rendezvous.";

/// Whether torchrun nodes of a run may read their state under this key. False for keys of a round
/// ("PREFIX RUN.ROUND/…"): a run id of that form is refused.
bool is_state_key(std::string_view key);

/// Whether Python's unpickler could read this text's base64, or could call something before it
/// fails. True also for each text that begins as a pickle of protocol 2 or later. False for texts
/// without base64.
bool may_be_pickle(std::string_view text);

/// The value that the store has under a key. Empty: none.
using StoredText = std::function<std::string_view(std::string_view key)>;

/// Why the store must refuse this writing request; empty: the store may apply it. All values but
/// those of COMPARE_SET must make unpickling fail also if something is appended to them.
std::optional<std::string> refuse_planted_pickle(const Request& request, const StoredText& stored);

}  // namespace muster
