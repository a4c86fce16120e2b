// The native door's messages: muster nodes and the rendezvous, on the store's port.
//
// Pure. A frame is a length and that many bytes of JSON, one object with a "type"; what a client
// sends has kNativeQuery in front, which no torch server knows: it closes the connection. Fields
// that are not known are ignored, so that a newer muster may add some. docs/protocol.md has the
// table, core/limits.h the limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include <boost/system/result.hpp>

#include "rendezvous/core/limits.h"
#include "rendezvous/core/node_report.h"
#include "rendezvous/core/rendezvous_events.h"

namespace muster {

inline constexpr std::uint8_t kNativeQuery = 0x6d;
/// Of the length, which is little-endian.
inline constexpr std::size_t kNativeLengthBytes = 8;

/// The first message on a connection. In every protocol it says its version and muster's, and so
/// does the answer; if the version is not ours, the other fields are not read.
struct NativeHello {
  int protocol_version = kNativeProtocolVersion;
  std::string muster_version;
  std::string run_id;
  /// It understands the answers to keep-alives and to resume.
  bool resumes = false;
  /// kProofDigits hexadecimal digits: it has a token, and wants to prove that. Empty: it has none.
  std::string nonce = {};
  /// It answers questions (NodeAsked).
  bool answers = false;
};
/// Its answer. It may only go on if the version is ours.
struct NativeWelcome {
  int protocol_version = kNativeProtocolVersion;
  std::string muster_version;
  std::string peer_address;  // The client's, numeric, as the server sees it.
  /// A node that is silent for so long is lost. An older muster does not say it.
  std::optional<Duration> lease;
  /// It answers keep-alives, and a node that lost its connection may resume.
  bool resumes = false;
  /// It is no node of the run, and is started again when it dies: musterd.
  bool outlives_nodes = false;
  /// Proves that the host has the token, too. Empty: it was not asked for one.
  std::string proof = {};
  /// It takes reports (NodeReport).
  bool takes_reports = false;
};
/// Answers a keep-alive.
struct NativeAlive {};
/// Between agents, at the workers' store of rank 0: a node of the round asks whether the round's
/// nodes still reach each other. Only while it does not hear the rendezvous.
struct NativeReach {
  std::int64_t generation = 0;
  int group_rank = 0;
  std::string run_id = {};  // Only with a nonce, to which it belongs.
  std::string nonce = {};   // As in NativeHello.
};
/// Its answer: rank 0 reaches every node of that round, or knows that no other round can begin.
struct NativeReached {
  bool whole = false;
  Duration age{};          // Since rank 0 heard the last of the others. Old musters do not say it.
  std::string proof = {};  // As in NativeWelcome.
};
/// From a host with a token, after a first message with a nonce: prove that you have it, too.
struct NativeChallenge {
  std::string nonce;  // As many digits as the node's.
};
/// Its answer. The host serves the first message then.
struct NativeProve {
  std::string proof;
};
/// The other answer: nothing more follows on this connection.
struct NativeRefused {
  std::string text;  // A sentence that names both sides.
};
/// To a node that waits for a round, or has finished: who has joined, who is missing, who works on.
struct NativeWaiting {
  std::string text;
};

using NativeRequest = std::variant<NativeHello, NodeJoined, NodeResumed, KeptAlive, NodeLeft,
                                   WorkersFailed, RestartRequested, StoreReady, NodeFinished,
                                   NativeReach, NativeProve, NodeReport, NodeAnswered>;
using NativeMessage =
    std::variant<NativeWelcome, NativeRefused, NativeWaiting, NativeAlive, PrepareStore,
                 RoundComplete, RestartRound, RunClosed, RunEnded, JoinRefused, NotAMember, Resumed,
                 Rejoin, NativeReached, NativeChallenge, NodeAsked>;

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
