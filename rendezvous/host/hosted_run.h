// One run at its host: its rendezvous, its torchrun nodes' turns, its history, and what was logged.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/line_bucket.h"
#include "rendezvous/host/node_reports.h"
#include "rendezvous/host/rendezvous.h"
#include "rendezvous/rounds/node_report.h"
#include "rendezvous/rounds/run_history.h"
#include "rendezvous/rounds/run_record.h"
#include "rendezvous/rounds/step_rates.h"
#include "rendezvous/store/shared_bytes.h"
#include "rendezvous/torchrun/rendezvous_turns.h"
#include "rendezvous/torchrun/state_key.h"

namespace muster {

/// Log lines of one kind, at most 50 in a second.
struct LineLimit {
  LineBucket bucket{50, std::chrono::seconds(1)};
  std::uint64_t left_out = 0;
};

/// RunRegistry changes the fields that are marked "registry".
struct HostedRun {
  explicit HostedRun(std::size_t& report_bytes) : reports(report_bytes) {}

  std::string key;
  std::unique_ptr<Rendezvous> rendezvous;  // Replaced when the run begins again. Never null.
  CompareSetTurns turns;
  std::uint64_t generation = 0;
  std::set<std::uint32_t> clients;
  /// A muster node that waits for a round, or for other nodes to finish.
  struct Waiter {
    Instant notify_at{};  // The first message is sent then. Most waits are over before.
    std::string last_text;
  };
  std::map<std::uint32_t, Waiter> waiting;
  KeptBytes text;
  std::optional<std::uint64_t> text_revision;
  /// The client at which the next part of the waiting messages begins. They are sent in parts, so
  /// that other runs are served in between. Empty: all parts are sent.
  std::optional<std::uint32_t> notify_from;
  std::string peer;                      // The address of the client that began it.
  std::optional<Instant> deserted;       // It has had no nodes since then.
  std::optional<Instant> idle;           // registry. Deserted and without connections since then.
  std::optional<Instant> deadline;       // registry
  bool notify_pending = false;           // Something has changed since the last waiting messages.
  Instant notify_at{};                   // When the next waiting messages may be sent.
  Instant notify_again{};                // notify_at after the last part.
  bool was_preparing = false;            // The phase was Preparing at the last notify_waiting().
  LineLimit node_lines;                  // Log lines about its nodes.
  LineLimit round_lines;                 // Log lines about its rounds, and about the run itself.
  std::optional<Instant> repeat_master;  // When to repeat rank 0's address if it is missing.
  /// What RunLog has logged in this generation.
  struct Logged {
    bool begin = false;
    bool end = false;
    bool closed = false;
    bool broken = false;
    std::size_t joins = 0;
    std::optional<std::int64_t> round;
    std::optional<Instant> gathering;  // When the first node of the next round came.
  };
  Logged logged;
  RunHistory history;
  std::optional<RecordedFailure> first_failure;  // Of `history`, for the record.
  /// What its node has reported about the first failure: NodeReports may drop it, and a host that
  /// is started again has only the record.
  std::optional<FailureReport> failure_report;
  std::int64_t began_ms = 0;  // When it began, in ms since 1970; 0: not yet, or not known.
  std::int64_t ended_ms = 0;  // When it ended, in ms since 1970; 0: not yet, or not known.
  std::optional<PreviousRun> previous;  // The ended run of this id before this one.
  /// Its entry in RunService::kept_.
  std::optional<std::pair<std::int64_t, std::string>> kept;
  bool only_for_people = false;     // Kept for longer than forget_after: its keys are removed.
  std::optional<Instant> up_since;  // When the newest round was complete or was resumed.
  NodeReports reports;
  StepRates steps;

  bool must_notify() const { return notify_pending || notify_from.has_value(); }
  std::string_view id() const { return std::string_view(key).substr(kStateKeyPrefix.size()); }
};

}  // namespace muster
