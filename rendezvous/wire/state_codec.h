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

#include "pickle/reader.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/core/rendezvous_state.h"

namespace muster {

/// The text that stands for "no state yet". Every torchrun node writes it when there is nothing.
inline constexpr std::string_view kNoStateText = "Y2FuaW1hZGFt";

inline constexpr std::size_t kMaxStateNodes = 65'536;  // In each of the four collections.
// Attributes of a state that torch 2.13 does not know. Another torch's nodes fail without them.
inline constexpr std::size_t kMaxForeignAttributes = 16;
inline constexpr std::size_t kMaxForeignNameBytes = 64;
inline constexpr std::size_t kMaxForeignBytes = 16'384;  // All together, with their names.
inline constexpr std::size_t kMaxForeignValues = 1'000;  // All together; shared ones each time.
inline constexpr int kMaxForeignDepth = 16;

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

/// The text of a state: base64 of the pickle that torch 2.13 writes for it. It never fails, and
/// decode_state() reads whatever it writes unless a limit is exceeded.
std::string encode_state(const RendezvousState& state);

/// The state of a text; nothing for kNoStateText.
StateResult<std::optional<RendezvousState>> decode_state(std::string_view text,
                                                         const pickle::PickleLimits& limits = {});

}  // namespace muster
