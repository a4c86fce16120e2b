#include "agent/io/event_log.h"

#include <chrono>
#include <utility>

#include "agent/core/signal_name.h"
#include "agent/io/worker_group.h"
#include "base/check.h"
#include "base/system/clock.h"

namespace muster {

EventLog::EventLog(const AgentOptions& options, const std::string& hostname,
                   std::function<void(std::string)> print)
    : print_(std::move(print)), begun_(now()), mark_(begun_) {
  if (options.events_on_console) context_ = event_context(options, hostname);
}

void EventLog::rendezvous_begun(int restart_count) {
  if (!context_) return;
  write_starts(true);
  next_start_ = 0;
  context_->agent_restarts = restart_count;
  mark_ = now();
}

void EventLog::rendezvous_completed() {
  if (!context_) return;
  write(agent_event(context(), "RENDEZVOUS", since_mark_ms()));
}

void EventLog::ranks_assigned(const RoundFacts& round) {
  if (!context_) return;
  write(agent_event(context(), "ASSIGN_WORKER_RANKS", since_mark_ms()));
  ranks_ = round.ranks;
  context_->group_rank = round.group_rank;
  context_->group_world_size = round.group_world_size;
}

void EventLog::worker_started(const RunningWorker& worker) {
  if (!context_) return;
  held_starts_[worker.rank] = worker.pid;
  write_starts(false);
}

// Writes the held events in the order of the ranks, up to the first rank that has not started.
// `all`: also the events after that rank, because its start has failed.
void EventLog::write_starts(bool all) {
  while (!held_starts_.empty() && (all || held_starts_.begin()->first.value == next_start_)) {
    const auto [rank, pid] = *held_starts_.begin();
    held_starts_.erase(held_starts_.begin());
    next_start_ = rank.value + 1;
    write(worker_event(context(), ranks_, {.state = "START", .local_rank = rank, .pid = pid}));
  }
}

void EventLog::finished(const Finish& action, const std::vector<ExplainedEnd>& ends,
                        const std::optional<std::string>& logs_full) {
  if (!context_) return;
  write_starts(true);
  context_->total_run_time_s =
      std::chrono::duration_cast<std::chrono::seconds>(now() - begun_).count();
  switch (action.why) {
    case Finish::Why::Succeeded:
    case Finish::Why::WorkerFailed:
      workers_ended(action.why == Finish::Why::Succeeded, ends);
      // torchrun's word: the agent has done its work, even if workers have failed.
      return write(agent_event(context(), "SUCCEEDED"));
    case Finish::Why::Signalled:
      return write(agent_event(context(), "FAILED", std::nullopt,
                               logs_full.value_or("received " + signal_name(action.signal))));
    case Finish::Why::StartFailed:
    case Finish::Why::RendezvousFailed:
    case Finish::Why::JobFailed:
    case Finish::Why::Preempted:
      return write(agent_event(context(), "FAILED", std::nullopt, action.reason));
  }
}

void EventLog::workers_ended(bool succeeded, const std::vector<ExplainedEnd>& ends) {
  for (const ExplainedEnd& end : ends) {
    WorkerEvent event{.state = succeeded ? "SUCCEEDED" : "TERMINATED",
                      .local_rank = end.local_rank,
                      .pid = end.pid};
    if (!succeeded && end.has_failed()) {
      event.state = "FAILED";
      event.failed = true;
      if (end.has_ended()) event.exit_code = end.exit.code();
      event.error_text = end.error_text;
    }
    write(worker_event(context(), ranks_, event));
  }
}

double EventLog::since_mark_ms() {
  const Instant before = std::exchange(mark_, now());
  return std::chrono::duration<double, std::milli>(mark_ - before).count();
}

EventContext& EventLog::context() {
  MUSTER_CHECK(context_.has_value());
  context_->now_ms = wall_ms();
  return *context_;
}

}  // namespace muster
