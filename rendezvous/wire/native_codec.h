// The native door's messages: muster nodes and the rendezvous, on the store's port.
//
// Pure. A frame is a length and that many bytes of JSON, one object with a "type"; what a client
// sends has kNativeQuery in front, which no torch server knows: it closes the connection. Fields
// that are not known are ignored, so that a newer muster may add some. docs/protocol.md has the
// table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include <boost/system/result.hpp>

#include "rendezvous/core/rendezvous_events.h"

namespace muster {

inline constexpr std::uint8_t kNativeQuery = 0x6d;
/// Of the length, which is little-endian.
inline constexpr std::size_t kNativeLengthBytes = 8;
/// The JSON of one message.
inline constexpr std::size_t kMaxNativeBytes = std::size_t{1} << 20;
/// One text in a message. Reasons, which people write, are cut to it; names must fit.
inline constexpr std::size_t kMaxNativeTextBytes = std::size_t{16} << 10;

/// The first message on a connection. In every protocol it says its version and muster's, and so
/// does the answer; if the version is not ours, the other fields are not read.
struct NativeHello {
  int protocol_version = kNativeProtocolVersion;
  std::string muster_version;
  std::string run_id;
};
/// Its answer. It may only go on if the version is ours.
struct NativeWelcome {
  int protocol_version = kNativeProtocolVersion;
  std::string muster_version;
  std::string peer_address;  // The client's, numeric, as the server sees it.
  /// A node that is silent for so long is lost. An older muster does not say it.
  std::optional<Duration> lease;
};
/// The other answer: nothing more follows on this connection.
struct NativeRefused {
  std::string text;  // A sentence that names both sides.
};
/// To a node that waits for a round, or has finished: who has joined, who is missing, who works on.
struct NativeWaiting {
  std::string text;
};

using NativeRequest = std::variant<NativeHello, NodeJoined, KeptAlive, NodeLeft, WorkersFailed,
                                   RestartRequested, StoreReady, NodeFinished>;
using NativeMessage =
    std::variant<NativeWelcome, NativeRefused, NativeWaiting, PrepareStore, RoundComplete,
                 RestartRound, RunClosed, RunEnded, JoinRefused, NotAMember>;

/// A whole frame. Who it is from or to is not in it: that is the connection.
std::string encode(const NativeRequest& request);
std::string encode(const NativeMessage& message);

/// Why a message is refused: `field` is empty if it is about the message as a whole.
struct NativeError {
  std::string field;
  std::string reason;
};
/// "field name.addr: missing"
std::string describe(const NativeError& error);

template <typename T>
using NativeResult = boost::system::result<T, NativeError>;

/// From a frame's JSON; `from` is filled in.
NativeResult<NativeRequest> decode_native_request(std::string_view json, ConnectionId from);
/// `to` is left as it is by default.
NativeResult<NativeMessage> decode_native_message(std::string_view json);

/// The length in front of a message, from its kNativeLengthBytes bytes; nothing if it is above
/// kMaxNativeBytes.
NativeResult<std::size_t> read_native_length(std::string_view bytes);

}  // namespace muster
