// The native door's messages between muster nodes and the rendezvous, on the store's port.
//
// Pure. A frame is a length and that many bytes of JSON, one object with a "type". A client's frame
// begins with kNativeQuery; a torch server does not know this byte and closes the connection.
// Unknown fields are ignored, so that a newer muster may add some. docs/protocol.md has the table,
// rendezvous/rounds/limits.h has the limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include <boost/system/result.hpp>

#include "base/json_field_error.h"
#include "rendezvous/rounds/node_report.h"
#include "rendezvous/rounds/rendezvous_events.h"
#include "rendezvous/store/native_frame.h"

namespace muster {

/// The first message on a connection. In every protocol version, it has the protocol version and
/// muster's version, and so has the answer. If the protocol version is not
/// kNativeProtocolVersion, the other fields are not read.
struct NativeHello {
  int protocol_version = kNativeProtocolVersion;
  std::string muster_version;
  std::string run_id;
  /// The node understands the answers to keep-alives and to resume.
  bool resumes = false;
  /// kProofDigits hexadecimal digits: the node has a token and wants to prove that. Empty: it has
  /// no token.
  std::string nonce = {};
  /// The node answers questions (NodeAsked).
  bool answers = false;
  /// The node understands PreemptionNotice.
  bool notices = false;
};
/// The answer to the hello. The client may go on only if the protocol version is its own.
struct NativeWelcome {
  int protocol_version = kNativeProtocolVersion;
  std::string muster_version;
  std::string peer_address;  // The client's, numeric, as the server sees it.
  /// A node that is silent for so long is lost. An older muster does not send it.
  std::optional<Duration> lease;
  /// The host answers keep-alives, and a node that lost its connection may resume.
  bool resumes = false;
  /// The host is not a node of the run, and is started again when it dies: musterd.
  bool outlives_nodes = false;
  /// Proves that the host has the token, too. Empty: the node has not asked for a proof.
  std::string proof = {};
  /// The host accepts reports (NodeReport).
  bool takes_reports = false;
  /// The two ends of the connection as the host sees them, "address:port". Empty: an older host. If
  /// the client sees others, something between the two has its own connection with each of them.
  std::string peer_end = {};
  std::string own_end = {};
  /// The state that the host keeps of its runs: hosts with the same id know the same runs. Empty:
  /// unknown, as of an older host or of a node that hosts its own run.
  std::string state_id = {};
  /// Other hosts may serve this state after this one.
  bool state_is_shared = false;
  /// The host accepts NodeNotified and NodeSaved.
  bool notices = false;
  /// The host accepts NodeProgressed.
  bool takes_progress = false;
};
/// Answers a keep-alive.
struct NativeAlive {};
/// Between agents, at the workers' store of rank 0: a node of the round asks whether the nodes of
/// the round still reach each other. A node sends it only while it does not hear the rendezvous.
struct NativeReach {
  std::int64_t generation = 0;
  int group_rank = 0;
  std::string run_id = {};  // Only together with a nonce.
  std::string nonce = {};   // As in NativeHello.
};
/// The answer to NativeReach. `whole`: rank 0 reaches every node of that round, or knows that no
/// other round can begin.
struct NativeReached {
  bool whole = false;
  /// The time since the oldest of the other nodes' last questions, or since the host refused rank
  /// 0's connection. An older muster does not send it.
  Duration age{};
  std::string proof = {};  // As in NativeWelcome.
};
/// From a host with a token, after a first message with a nonce: the node must prove that it has
/// the token, too.
struct NativeChallenge {
  std::string nonce;  // It has as many digits as the node's nonce.
};
/// The answer to the challenge. After that the host serves the first message.
struct NativeProve {
  std::string proof;
};
/// Refuses the hello: no other message follows on this connection.
struct NativeRefused {
  std::string text;  // A sentence that names both sides.
  /// Where a token is required: the host's proof, if the node has proven the token. See
  /// token_proof.h.
  std::string proof = {};
};
/// To a node that waits for a round, or has finished: which nodes have joined, are missing, or
/// still work.
struct NativeWaiting {
  std::string text;
};

using NativeRequest =
    std::variant<NativeHello, NodeJoined, NodeResumed, KeptAlive, NodeLeft, WorkersFailed,
                 RestartRequested, StoreReady, NodeFinished, NativeReach, NativeProve, NodeReport,
                 NodeAnswered, NodeNotified, NodeSaved, NodeProgressed>;
using NativeMessage =
    std::variant<NativeWelcome, NativeRefused, NativeWaiting, NativeAlive, PrepareStore,
                 RoundComplete, RestartRound, RunClosed, RunEnded, JoinRefused, NotAMember, Resumed,
                 Rejoin, NativeReached, NativeChallenge, NodeAsked, Notice, PreemptionNotice>;

/// A whole frame. It does not contain `from` or `to`: the connection identifies the node.
std::string encode(const NativeRequest& request);
std::string encode(const NativeMessage& message);

/// Why a message is refused.
using NativeError = JsonFieldError;

template <typename T>
using NativeResult = boost::system::result<T, NativeError>;

/// Decodes a frame's JSON; the field `from` of the request is set.
NativeResult<NativeRequest> decode_native_request(std::string_view json, ConnectionId from);
/// Decodes a frame's JSON; the field `to` of the message keeps its default.
NativeResult<NativeMessage> decode_native_message(std::string_view json);

/// The length in front of a message, from its kNativeLengthBytes bytes; an error if it is above
/// kMaxNativeBytes.
NativeResult<std::size_t> read_native_length(std::string_view bytes);

}  // namespace muster
