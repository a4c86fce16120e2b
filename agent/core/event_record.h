// --event-log-handler console: one line of JSON for each event of a worker group, as torchrun 2.13
// writes it (torch/distributed/elastic/agent/server/api.py).
//
// Pure. The fields, their order and their peculiarities are torchrun's, because programs that read
// these lines rely on them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/core/agent_options.h"
#include "agent/core/ranks.h"
#include "base/ids.h"

namespace muster {

/// The fields that every event of an agent has.
struct EventContext {
  std::string run_id;
  std::string role;
  std::string hostname;
  std::string rdzv_backend;
  std::string entry_point;  // The program's name without its folder, or run_script_path.
  std::optional<GroupRank> group_rank;  // Empty before the first round is complete.
  std::optional<int> group_world_size;
  int agent_restarts = 0;
  std::int64_t total_run_time_s = 0;  // 0 until the run is over.
  std::int64_t now_ms = 0;            // Since the epoch. torchrun always writes 0.
};

/// The part of the context that does not change.
EventContext event_context(const AgentOptions& options, std::string hostname);

/// An event of the whole group: RENDEZVOUS, ASSIGN_WORKER_RANKS, SUCCEEDED, FAILED.
std::string agent_event(const EventContext& context, std::string_view state,
                        std::optional<double> duration_ms = std::nullopt,
                        const std::optional<std::string>& raw_error = std::nullopt);

/// An event of one worker: START, SUCCEEDED, FAILED, TERMINATED (muster ended the worker before it
/// could fail).
struct WorkerEvent {
  std::string_view state;
  LocalRank local_rank;
  int pid = 0;
  bool failed = false;
  /// Only if it failed. For a signal, its negative number. Empty: it could not be killed.
  std::optional<int> exit_code;
  std::string error_text;  // The text of its error file. Empty: the worker left none.
};
std::string worker_event(const EventContext& context, const AssignedRanks& ranks,
                         const WorkerEvent& event);

}  // namespace muster
