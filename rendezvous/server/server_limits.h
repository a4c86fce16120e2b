// Limits on the connections of a server, on their unread replies, on each run's share, and on the
// work of one turn of its loop.
//
// docs/protocol.md lists them, with musterd's option for each limit that can be changed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster {

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

/// Work is counted in units of about a nanosecond (work_budget.h). The server gives one connection
/// at most this much work at a time while others wait.
inline constexpr std::int64_t kSliceWork = std::int64_t{1} << 20;
/// The work of all connections in one turn of the loop. Beyond that, each connection gets only the
/// small slice, which is enough for honest requests; larger requests wait for the next turn.
inline constexpr std::int64_t kTurnWork = std::int64_t{8} << 20;
inline constexpr std::int64_t kSmallSliceWork = std::int64_t{64} << 10;

}  // namespace muster
