// What all connections of one server share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/system/log_limiter.h"
#include "base/time.h"
#include "rendezvous/access/token_proof.h"
#include "rendezvous/host/run_service.h"
#include "rendezvous/server/c10d_allow.h"
#include "rendezvous/server/run_accounts.h"
#include "rendezvous/server/server_limits.h"
#include "rendezvous/server/work_budget.h"
#include "rendezvous/store/c10d_codec.h"
#include "rendezvous/store/reply_queue.h"
#include "rendezvous/store/store_table.h"
#include "rendezvous/store/store_traffic.h"
#include "rendezvous/tls/tls_rules.h"

namespace muster {

/// The encoding of the last message that other nodes may get, too: a message to all nodes of a run
/// is encoded once.
struct LastFrame {
  NativeMessage message;
  std::string frame;
};

/// The callers that wait for an answer from the runs, each by a number.
struct WaitingCallers {
  std::map<std::uint64_t, std::function<void(NodeAnswered)>> questions;  // To a node.
  std::map<std::uint64_t, std::function<void(std::string)>> operations;  // Of an operator.
  std::uint64_t last_operation = 0;
};

/// No lock is needed: connections are served one after the other.
struct ConnectionShared {
  static constexpr std::size_t kReadBytes = 64 << 10;

  ConnectionShared(const CodecLimits& codec_limits, StoreLimits table_limits,
                   const ConnectionLimits& connection_limits, const RunLimits& run_limits,
                   C10dDoor c10d_door)
      : codec(codec_limits),
        table(table_limits),
        limits(table_limits),
        connections(connection_limits),
        c10d(std::move(c10d_door)),
        accounts(run_limits),
        read_buffer(new char[kReadBytes]) {}

  /// Does the same as table.apply(), and counts the change in the account of the run that the
  /// request's first key belongs to.
  Reply apply(ConnectionId from, const Request& request);
  /// Do the same as table.abandon() and table.disconnect(). `waits_for_run`: the run whose keys the
  /// client waits for. Empty: it waits for no run's keys.
  void abandon(ConnectionId client, std::string_view waits_for_run);
  void disconnect(ConnectionId client, std::string_view waits_for_run);
  /// Deletes the keys below `prefix` that `wanted` accepts, and counts that for `run`.
  void delete_below(std::string_view prefix, std::string_view run,
                    const std::function<bool(std::string_view)>& wanted);

  /// The memory of unread replies, including values that only these replies still hold.
  std::size_t unread_bytes() const { return queued_bytes + table.account().only_unread(); }
  RunService::Time time() const;  // `now`, and the wall clock's time.

  CodecLimits codec;
  StoreTable table;
  StoreLimits limits;
  ConnectionLimits connections;
  C10dDoor c10d;
  RunAccounts accounts;
  std::unique_ptr<char[]> read_buffer;
  RequestScratch scratch;
  ReplyQueue replies;            // The replies to the connection that is being served.
  std::size_t queued_bytes = 0;  // Memory of all connections' unread replies, without values.
  StoreTraffic traffic;
  WorkBudget work;
  std::unique_ptr<RunService> runs;  // Null if the server is only a store.
  Instant now{};                     // When the events that are being handled were read.
  LogLimiter log;
  std::function<void(ConnectionId)> wake;  // Sends kStopWaiting to another connection.
  std::function<std::optional<Instant>(const NativeReach&)> reach;  // StoreServerOptions::reach.
  SharedHostTokens tokens;  // StoreServerOptions::token, ::run_tokens.
  std::string token_run;
  bool tls = false;          // The native door is served over TLS only.
  SharedTlsRules tls_rules;  // StoreServerOptions::tls_rules.
  /// Whether a client of the c10d door may use the keys of one run only.
  bool runs_apart = false;
  WaitingCallers callers;
  /// The number of connections that the server has closed or refused, by reason. The reasons are
  /// static.
  std::map<std::string_view, std::uint64_t> closed;
  LastFrame last_frame;
};

}  // namespace muster
