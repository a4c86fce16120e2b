// Limits on messages and reports of nodes, and on runs and their nodes.
//
// docs/protocol.md lists them, with musterd's option for each limit that can be changed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster {

// --- native messages -----------------------------------------------------------------------------

/// Values in one message, including unknown fields and elements of arrays.
inline constexpr std::size_t kMaxNativeValues = 256;
/// Nested objects and arrays, including the message itself.
inline constexpr std::size_t kMaxNativeDepth = 8;

// --- texts in native messages ------------------------------------------------------------------

/// A reason ("rank 3 exited with 1"). The sender cuts a longer reason; all other texts must fit.
inline constexpr std::size_t kMaxNativeTextBytes = std::size_t{16} << 10;
/// A reason that one node sends and the host passes on to all nodes of the run. The host cuts a
/// longer one: with 16 KiB for each of 8,000 nodes, one message cost 128 MiB.
inline constexpr std::size_t kMaxSharedReasonBytes = std::size_t{1} << 10;
inline constexpr std::size_t kMaxAddressBytes = 256;  // A DNS name has at most 253.
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

}  // namespace muster
