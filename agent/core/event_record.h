// --event-log-handler console: one line of JSON for each thing that happens to a worker group, as
// torchrun 2.13 writes them (torch/distributed/elastic/agent/server/api.py).
//
// Pure. Fields, their order and their odd corners are torchrun's: what reads them counts on it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/core/agent_options.h"
#include "agent/core/ranks.h"
#include "rendezvous/core/ids.h"

namespace muster {

/// What every event of an agent tells.
struct EventContext {
  std::string run_id;
  std::string role;
  std::string hostname;
  std::string rdzv_backend;
  std::string entry_point;  // The program's name without its folder, or run_script_path.
  std::optional<GroupRank> group_rank;  // Nothing before the first round is complete.
  std::optional<int> group_world_size;
  int agent_restarts = 0;
  std::int64_t total_run_time_s = 0;  // 0 until the run is over.
  std::int64_t now_ms = 0;            // Since the epoch. torchrun leaves it at 0.
};

/// The part of the context that does not change.
EventContext event_context(const AgentOptions& options, std::string hostname);

/// Of the whole group: RENDEZVOUS, ASSIGN_WORKER_RANKS, SUCCEEDED, FAILED.
std::string agent_event(const EventContext& context, std::string_view state,
                        std::optional<double> duration_ms = std::nullopt,
                        const std::optional<std::string>& raw_error = std::nullopt);

/// One worker: START, SUCCEEDED, FAILED, TERMINATED (by muster, before it could fail).
struct WorkerEvent {
  std::string_view state;
  LocalRank local_rank;
  int pid = 0;
  bool failed = false;
  int exit_code = 0;       // Only if it failed; a signal's number is negative.
  std::string error_text;  // Of its error file; empty: it left none.
};
std::string worker_event(const EventContext& context, const AssignedRanks& ranks,
                         const WorkerEvent& event);

}  // namespace muster
