// The rendezvous state <-> the text under torchrun's key "torch.rendezvous.<run id>".
//
// The encoder writes base64 of the pickle that torch 2.13 would write for the same state. The
// decoder reads the states of any torch (pickle protocols 2 to 5) and executes nothing.
// docs/rendezvous_rules.md.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <boost/system/result.hpp>

#include "pickle/reader.h"
#include "rendezvous/torchrun/rendezvous_state.h"

namespace muster {

/// The text for "no state yet". Every torchrun node writes it if there is no value.
inline constexpr std::string_view kNoStateText = "Y2FuaW1hZGFt";

/// An address in a state: torchrun accepts any text.
inline constexpr std::size_t kMaxStateAddressBytes = 1024;
inline constexpr std::size_t kMaxStateNodes = 65'536;  // In each of the four collections.
// Attributes of a state that torch 2.13 does not know. Another torch's nodes fail without them.
inline constexpr std::size_t kMaxForeignAttributes = 16;
inline constexpr std::size_t kMaxForeignNameBytes = 64;
inline constexpr std::size_t kMaxForeignBytes = 16'384;  // All together, with their names.
inline constexpr std::size_t kMaxForeignValues = 1'000;  // All together; a shared one each time.
inline constexpr int kMaxForeignDepth = 16;

/// Why a text is refused.
struct StateError {
  enum class Part { Text, Pickle };
  Part part = Part::Text;  // `offset` counts characters of the text, or bytes of the pickle.
  std::size_t offset = 0;
  std::string reason;
};
/// "byte 17 of the pickle: truncated"
std::string describe(const StateError& error);

template <typename T>
using StateResult = boost::system::result<T, StateError>;

/// The text of a state: base64 of the pickle that torch 2.13 writes for it. Never fails.
/// decode_state() can read the result unless it exceeds a limit.
std::string encode_state(const RendezvousState& state);

/// The state of a text; empty for kNoStateText.
StateResult<std::optional<RendezvousState>> decode_state(std::string_view text,
                                                         const pickle::PickleLimits& limits = {});

}  // namespace muster
