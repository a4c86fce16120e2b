// The rendezvous state <-> the text under torchrun's key "torch.rendezvous.<run id>".
//
// Written: base64 of the pickle that torch 2.13 would write for the same state. Read: what any
// torch writes (pickle protocols 2 to 5), by a reader that executes nothing. docs/rendezvous.md.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <boost/system/result.hpp>

#include "rendezvous/core/rendezvous_state.h"
#include "rendezvous/wire/pickle_reader.h"

namespace muster {

/// The text that stands for "no state yet". Every torchrun node writes it when there is nothing.
inline constexpr std::string_view kNoStateText = "Y2FuaW1hZGFt";

inline constexpr std::size_t kMaxStateNodes = 65'536;  // In each of the four collections.
inline constexpr std::size_t kMaxAddressBytes = 4'096;
inline constexpr std::size_t kMaxForeignBytes = std::size_t{1} << 20;  // All attributes together.

/// Why a text is refused.
struct StateError {
  enum class Part { Text, Pickle };
  Part part = Part::Text;  // What `offset` counts: characters of the text, or bytes of the pickle.
  std::size_t offset = 0;
  std::string reason;
};
/// "byte 17 of the pickle: truncated"
std::string describe(const StateError& error);

template <typename T>
using StateResult = boost::system::result<T, StateError>;

/// The text of a state, ready to be compared with what torch has written.
std::string encode_state(const RendezvousState& state);

/// The state of a text; nothing for kNoStateText.
StateResult<std::optional<RendezvousState>> decode_state(std::string_view text,
                                                         const pickle::PickleLimits& limits = {});

}  // namespace muster
