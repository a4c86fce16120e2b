// All limits on what a client of a store server may send, hold or queue.
//
// docs/protocol.md lists them, with musterd's option for each limit that can be changed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster {

// --- native messages -----------------------------------------------------------------------------

/// The JSON of a connection's first native message, a hello, which has two short texts.
inline constexpr std::size_t kMaxHelloBytes = std::size_t{16} << 10;
/// The JSON of any other message. Its largest text is a reason, and JSON may need six bytes for
/// each byte of it.
inline constexpr std::size_t kMaxNativeBytes = std::size_t{128} << 10;
/// Values in one message, including unknown fields and elements of arrays.
inline constexpr std::size_t kMaxNativeValues = 256;
/// Nested objects and arrays, including the message itself.
inline constexpr std::size_t kMaxNativeDepth = 8;

// --- texts in native messages and states ---------------------------------------------------------

/// A reason ("rank 3 exited with 1"). The sender cuts a longer reason; all other texts must fit.
inline constexpr std::size_t kMaxNativeTextBytes = std::size_t{16} << 10;
/// A reason that one node sends and the host passes on to all nodes of the run. The host cuts a
/// longer one: with 16 KiB for each of 8,000 nodes, one message cost 128 MiB.
inline constexpr std::size_t kMaxSharedReasonBytes = std::size_t{1} << 10;
inline constexpr std::size_t kMaxAddressBytes = 256;  // A DNS name has at most 253.
/// An address in a state: torchrun accepts any text.
inline constexpr std::size_t kMaxStateAddressBytes = 1024;
inline constexpr std::size_t kMaxRoleBytes = 256;
inline constexpr std::size_t kMaxRunIdBytes = 1024;
inline constexpr std::size_t kMaxVersionBytes = 256;
inline constexpr std::size_t kMaxInstanceBytes = 64;
inline constexpr std::size_t kMaxCommandBytes = 64;  // A digest.
inline constexpr std::size_t kMaxStateIdBytes = 64;
/// The roles of one run of which the host remembers the first node's command.
inline constexpr std::size_t kMaxComparedRoles = 64;
/// Hexadecimal digits of a nonce or a proof, which has 32 bytes.
inline constexpr std::size_t kProofDigits = 64;

// --- reports of nodes, and questions to them, for people -----------------------------------------

/// Workers in one report.
inline constexpr std::size_t kMaxReportedWorkers = 32;
/// Each text of a failure in a report. The sender cuts longer ones.
inline constexpr std::size_t kMaxReportTextBytes = std::size_t{4} << 10;
/// The reports that one node may send at once, and then in each second. Further ones are dropped.
inline constexpr int kReportBurst = 8;
inline constexpr int kReportsPerSecond = 2;
/// Memory for all reports that a host keeps. Beyond that, the texts of failures are not kept.
inline constexpr std::size_t kMaxReportBytes = std::size_t{64} << 20;
/// Failures of one run that are kept with their texts: the oldest and the newest ones.
inline constexpr std::size_t kMaxReportedFailures = 8;
/// Bytes of a log or of a stack in one answer of a node. Base64 adds a third.
inline constexpr std::size_t kMaxPieceBytes = std::size_t{48} << 10;
/// Questions of a host that wait for answers.
inline constexpr std::size_t kMaxQuestions = 64;

// --- the store -----------------------------------------------------------------------------------

struct StoreLimits {
  std::size_t keys = 4'000'000;               // Names stored, queued or waited for.
  std::size_t bytes = std::size_t{16} << 30;  // Names, values, queues, waits, states and inputs.
  /// A value that APPENDs have made. An append to a value that a client is being sent copies it.
  std::size_t appended_bytes = std::size_t{1} << 30;
};

/// The limits of one request to the store; native messages have kMaxHelloBytes and kMaxNativeBytes.
/// The first three are those of torch's libuv server.
struct CodecLimits {
  std::uint64_t key_bytes = 8192;
  std::uint64_t value_bytes = std::uint64_t{8} << 20;
  std::uint64_t keys_per_request = 131'072;
  std::uint64_t request_bytes = std::uint64_t{2} << 30;  // torch has no such limit.
  /// Whether a client may use the native door: native_codec.h.
  bool native_door = false;
  /// The number of native messages at the beginning to which the limit of a hello applies. With a
  /// token, the proof is one of them.
  int short_native_messages = 1;
};

// --- connections ---------------------------------------------------------------------------------

struct ConnectionLimits {
  std::size_t connections = 100'000;
  std::size_t connections_per_address = 50'000;
  /// Unread replies of one client. Beyond that, the server reads nothing from the client until half
  /// of them are sent. A single reply may be larger.
  std::size_t queued_bytes = std::size_t{2} << 20;
  /// Memory of the unread replies of all clients, including values that only these replies hold.
  /// Beyond that, the server closes the clients with the most unread bytes. It never builds a
  /// larger reply.
  std::size_t queued_total_bytes = std::size_t{256} << 20;
};

/// The limits of a server for one job of so many workers: strangers cannot make it as large as a
/// server of many jobs.
inline ConnectionLimits limits_of_one_job(std::size_t workers) {
  constexpr std::size_t kBase = std::size_t{64} << 20;
  constexpr std::size_t kPerWorker = std::size_t{1} << 20;
  ConnectionLimits limits;
  const std::size_t most = limits.queued_total_bytes;
  const std::size_t counted = workers < most / kPerWorker ? workers : most / kPerWorker;
  limits.queued_total_bytes =
      kBase + counted * kPerWorker < most ? kBase + counted * kPerWorker : most;
  return limits;
}

/// Unread replies of a client that was not let in yet, which asks for PING only. Beyond that, the
/// server closes it.
inline constexpr std::size_t kMaxStrangerQueuedBytes = std::size_t{4} << 10;

/// The share of one run in a server that serves many. Nodes of one run: kMaxMembers.
struct RunLimits {
  /// Connections of its nodes, and of clients whose first key of any run belongs to this run.
  std::size_t connections = 70'000;
  std::size_t keys = 1'000'000;              // Names stored, queued or waited for.
  std::size_t bytes = std::size_t{4} << 30;  // Of those names and their values.
  /// Unread replies of all its connections. Beyond that, the connection with the most is closed.
  std::size_t queued_bytes = std::size_t{64} << 20;
};

/// Work is counted in units of about a nanosecond. The server gives one connection at most this
/// much work at a time while others wait.
inline constexpr std::int64_t kSliceWork = std::int64_t{1} << 20;
/// The work of all connections in one turn of the loop. Beyond that, each connection gets only the
/// small slice, which is enough for honest requests; larger requests wait for the next turn.
inline constexpr std::int64_t kTurnWork = std::int64_t{8} << 20;
inline constexpr std::int64_t kSmallSliceWork = std::int64_t{64} << 10;

// --- runs and their nodes ------------------------------------------------------------------------

/// Nodes of one run, muster's and torchrun's together.
inline constexpr std::size_t kMaxMembers = 65'536;
/// Nodes of one run to which the host says at a time what they wait for. The others follow when the
/// loop has served other runs.
inline constexpr std::size_t kMaxNotifiedNodes = 500;
/// Lost nodes of one run that the host still recognises when the run has ended.
inline constexpr std::size_t kMaxLostAgents = 256;
/// Workers of one round. Their number and each rank fit into an int.
inline constexpr int kMaxRoundWorkers = 1 << 30;
/// Workers of one node.
inline constexpr int kMaxLocalWorldSize = 1 << 20;
/// Numbers that are tried for a node whose name another node has, if the number after the largest
/// one in use cannot be used.
inline constexpr int kMaxNameTries = 1024;
/// Nodes in a row that may fail to host the workers' store as rank 0 of a round.
inline constexpr int kMaxPrepareTries = 3;
/// Runs of which one connection of the c10d door may read the state, or which it may begin. A
/// torchrun node is in one run.
inline constexpr std::size_t kMaxRunsPerConnection = 64;
/// Runs that one address has begun.
inline constexpr std::size_t kMaxRunsPerPeer = 2'000;
/// How many of `runs` may have been begun from one address: a fifth is left for the others.
inline constexpr std::size_t runs_for_one_peer(std::size_t runs) {
  const std::size_t for_others = runs / 5 > 0 ? runs / 5 : 1;
  const std::size_t share = runs > for_others ? runs - for_others : 1;
  return share < kMaxRunsPerPeer ? share : kMaxRunsPerPeer;
}

// --- the log -------------------------------------------------------------------------------------

/// A text from outside in one line of the log.
inline constexpr std::size_t kMaxLoggedTextBytes = 512;

}  // namespace muster
