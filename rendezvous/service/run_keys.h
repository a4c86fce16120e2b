// Which keys of a store are a run's: its state, and what its nodes tell each other in a round.
#pragma once

#include <string_view>

namespace muster {

/// The key of the state of the run that `key` belongs to ("/torch.rendezvous.RUN"), a part of
/// `key`: the key itself, or what is in front of a round's (".ROUND/..."). Empty: it is no run's.
std::string_view run_of_key(std::string_view key);

}  // namespace muster
