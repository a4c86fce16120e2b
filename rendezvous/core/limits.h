// Every limit on what a client of a store server may send, hold or queue, in one place.
//
// docs/protocol.md lists them, with musterd's option for each one that can be changed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster {

// --- native messages -----------------------------------------------------------------------------

/// The JSON of a connection's first native message, a hello: it holds two short texts.
inline constexpr std::size_t kMaxHelloBytes = std::size_t{16} << 10;
/// The JSON of any other message. Its largest text is a reason, and JSON may write each byte of it
/// in six.
inline constexpr std::size_t kMaxNativeBytes = std::size_t{128} << 10;
/// Values in one message, unknown fields and elements of arrays included.
inline constexpr std::size_t kMaxNativeValues = 256;
/// Objects and arrays inside each other, the message itself included.
inline constexpr std::size_t kMaxNativeDepth = 8;

// --- texts in native messages and states ---------------------------------------------------------

/// A reason ("rank 3 exited with 1"). Longer ones are cut by who sends them; all other texts must
/// fit.
inline constexpr std::size_t kMaxNativeTextBytes = std::size_t{16} << 10;
inline constexpr std::size_t kMaxAddressBytes = 256;  // A DNS name has at most 253.
/// In a state: torchrun takes any text.
inline constexpr std::size_t kMaxStateAddressBytes = 1024;
inline constexpr std::size_t kMaxRoleBytes = 256;
inline constexpr std::size_t kMaxRunIdBytes = 1024;
inline constexpr std::size_t kMaxVersionBytes = 256;
inline constexpr std::size_t kMaxInstanceBytes = 64;
/// Hexadecimal digits of a nonce or a proof: of 32 bytes.
inline constexpr std::size_t kProofDigits = 64;

// --- what nodes report, and are asked, for people -----------------------------------------------

/// Workers in one report.
inline constexpr std::size_t kMaxReportedWorkers = 32;
/// Each text of a failure in a report; who sends it cuts it.
inline constexpr std::size_t kMaxReportTextBytes = std::size_t{4} << 10;
/// Reports of one node: so many at once, then so many in a second. Others are dropped.
inline constexpr int kReportBurst = 8;
inline constexpr int kReportsPerSecond = 2;
/// Memory of all reports of a host. Beyond it, the texts of failures are not kept.
inline constexpr std::size_t kMaxReportBytes = std::size_t{64} << 20;
/// Failures with their texts that are kept of one run; the oldest and the newest ones.
inline constexpr std::size_t kMaxReportedFailures = 8;
/// A node's answer: bytes of a log or of a stack. In base64 they are a third more.
inline constexpr std::size_t kMaxPieceBytes = std::size_t{48} << 10;
/// Questions of a host that wait for their answers.
inline constexpr std::size_t kMaxQuestions = 64;

// --- the store -----------------------------------------------------------------------------------

struct StoreLimits {
  std::size_t keys = 4'000'000;               // Names stored, queued or waited for.
  std::size_t bytes = std::size_t{16} << 30;  // Names, values, queues, waits, states and inputs.
};

/// What one request may have. The first three are those of torch's libuv server.
struct CodecLimits {
  std::uint64_t key_bytes = 8192;
  std::uint64_t value_bytes = std::uint64_t{8} << 20;
  std::uint64_t keys_per_request = 131'072;
  std::uint64_t request_bytes = std::uint64_t{2} << 30;  // torch has none.
  /// Whether a client may turn to the native door: native_codec.h.
  bool native_door = false;
  /// How many native messages at the beginning are as short as a hello is. With a token its proof
  /// is one, too.
  int short_native_messages = 1;
};

// --- connections ---------------------------------------------------------------------------------

struct ConnectionLimits {
  std::size_t connections = 100'000;
  std::size_t connections_per_address = 50'000;
  /// Unread replies of one client. Beyond it nothing more is read from that client until half of
  /// it is gone; a single reply may be larger.
  std::size_t queued_bytes = std::size_t{2} << 20;
  /// Memory of the unread replies of all clients, values that only they still hold included.
  /// Beyond it the clients with the most unread bytes are closed; no larger reply is built.
  std::size_t queued_total_bytes = std::size_t{256} << 20;
};

/// What one run may have of a server that serves many. Nodes of one run: kMaxMembers.
struct RunLimits {
  /// Of its nodes, and of clients whose first key of a run is this run's.
  std::size_t connections = 70'000;
  std::size_t keys = 1'000'000;              // Names stored, queued or waited for.
  std::size_t bytes = std::size_t{4} << 30;  // Of those names and their values.
  /// Unread replies of all its connections. Beyond it the one with the most is closed.
  std::size_t queued_bytes = std::size_t{64} << 20;
};

/// Work is counted in units of about a nanosecond. A connection is served for so long at a time,
/// while others wait.
inline constexpr std::int64_t kSliceWork = std::int64_t{1} << 20;
/// All connections together may use so much of a turn of the loop; then each gets only the small
/// slice, which is enough for honest requests, and whatever costs more waits for the next turn.
inline constexpr std::int64_t kTurnWork = std::int64_t{8} << 20;
inline constexpr std::int64_t kSmallSliceWork = std::int64_t{64} << 10;

// --- runs and their nodes ------------------------------------------------------------------------

/// Nodes of one run, muster's and torchrun's together.
inline constexpr std::size_t kMaxMembers = 65'536;
/// Workers of one round: their number and each rank fit an int.
inline constexpr int kMaxRoundWorkers = 1 << 30;
/// Workers of one node.
inline constexpr int kMaxLocalWorldSize = 1 << 20;
/// Numbers that are tried for a node whose name another node has, where the next one is no choice.
inline constexpr int kMaxNameTries = 1024;
/// Nodes in a row that may fail to host the workers' store as rank 0 of a round.
inline constexpr int kMaxPrepareTries = 3;
/// Runs whose states one connection of the c10d door may ask for, or begin. A torchrun node is in
/// one.
inline constexpr std::size_t kMaxRunsPerConnection = 64;
/// Runs that were begun from one address.
inline constexpr std::size_t kMaxRunsPerPeer = 2'000;

// --- the log -------------------------------------------------------------------------------------

/// Text from outside in one line of the log.
inline constexpr std::size_t kMaxLoggedTextBytes = 512;

}  // namespace muster
