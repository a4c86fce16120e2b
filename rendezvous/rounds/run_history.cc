#include "rendezvous/rounds/run_history.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/cut_text.h"

namespace muster {
namespace {

using EventKind = RunEvent::Kind;

bool may_merge(RunEvent::Kind kind) {
  return kind == EventKind::NodeJoined || kind == EventKind::NodeLeft ||
         kind == EventKind::NodeLost || kind == EventKind::NoticeGiven ||
         kind == EventKind::NodeSaved || kind == EventKind::NoticeOver;
}

bool is_failure(const RunEvent& event) {
  if (event.kind == EventKind::Failed || event.kind == EventKind::NodeLost ||
      event.kind == EventKind::Broken)
    return true;
  return event.kind == EventKind::RoundRestarts && event.cause == RestartCause::WorkersFailed;
}

void count(const RunEvent& event, RunCounters& counters) {
  switch (event.kind) {
    case EventKind::Began:
      ++counters.runs_begun;
      break;
    case EventKind::NodeJoined:
      ++counters.nodes_joined;
      break;
    case EventKind::NodeLeft:
      ++counters.nodes_left;
      break;
    case EventKind::NodeLost:
      ++counters.nodes_lost;
      break;
    case EventKind::RoundComplete:
      ++counters.rounds;
      if (event.took) counters.rendezvous.add(*event.took);
      break;
    case EventKind::RoundRestarts:
      if (event.cause) ++counters.restarts[static_cast<std::size_t>(*event.cause)];
      break;
    case EventKind::RoundResumed:
      ++counters.rounds_resumed;
      break;
    case EventKind::Succeeded:
      ++counters.runs_succeeded;
      break;
    case EventKind::Failed:
      ++counters.runs_failed;
      if (event.hopeless) ++counters.runs_hopeless;
      break;
    case EventKind::Preempted:
      ++counters.runs_preempted;
      break;
    case EventKind::NoticeGiven:
      ++counters.notices;
      break;
    case EventKind::RoundNotResumed:
    case EventKind::Closed:
    case EventKind::Broken:
    case EventKind::NodeDrained:
    case EventKind::NodeExcluded:
    case EventKind::NodeAllowed:
    case EventKind::NodeSaved:
    case EventKind::NoticeOver:
      break;
  }
}

}  // namespace

std::string_view to_string(RestartCause cause) {
  switch (cause) {
    case RestartCause::WorkersFailed:
      return "workers_failed";
    case RestartCause::NodeLost:
      return "node_lost";
    case RestartCause::NodeLeft:
      return "node_left";
    case RestartCause::NodeJoined:
      return "node_joined";
    case RestartCause::Requested:
      return "requested";
    case RestartCause::Notice:
      return "notice";
  }
  return "unknown";
}

std::string_view to_string(RunEvent::Kind kind) {
  switch (kind) {
    case EventKind::Began:
      return "run_began";
    case EventKind::NodeJoined:
      return "node_joined";
    case EventKind::NodeLeft:
      return "node_left";
    case EventKind::NodeLost:
      return "node_lost";
    case EventKind::RoundComplete:
      return "round_complete";
    case EventKind::RoundRestarts:
      return "round_restarts";
    case EventKind::RoundResumed:
      return "round_resumed";
    case EventKind::RoundNotResumed:
      return "round_not_resumed";
    case EventKind::Closed:
      return "run_closed";
    case EventKind::Succeeded:
      return "run_succeeded";
    case EventKind::Failed:
      return "run_failed";
    case EventKind::Broken:
      return "run_broken";
    case EventKind::NodeDrained:
      return "node_drained";
    case EventKind::NodeExcluded:
      return "node_excluded";
    case EventKind::NodeAllowed:
      return "node_allowed";
    case EventKind::NoticeGiven:
      return "notice_given";
    case EventKind::NodeSaved:
      return "node_saved";
    case EventKind::NoticeOver:
      return "notice_over";
    case EventKind::Preempted:
      return "run_preempted";
  }
  return "unknown";
}

void DurationHistogram::add(Duration took) {
  const double seconds = std::chrono::duration<double>(took).count();
  const auto bound =
      std::find_if(kBounds.begin(), kBounds.end(), [&](double upper) { return seconds <= upper; });
  ++counts[static_cast<std::size_t>(bound - kBounds.begin())];
  sum_seconds += seconds;
}

std::uint64_t DurationHistogram::count() const {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

void RunHistory::add(RunEvent event, Instant now, RunCounters& counters) {
  count(event, counters);
  if (event.kind == EventKind::Began) {
    first_failure_.reset();
    restarts_since_.reset();
  }
  if (event.kind == EventKind::RoundRestarts && !restarts_since_) restarts_since_ = now;
  if (event.kind == EventKind::RoundComplete && restarts_since_) {
    counters.recovery.add(now - *restarts_since_);
    restarts_since_.reset();
  }
  event.at = now;
  event.number = next_++;
  cut_text(event.text, kMaxEventTextBytes);
  cut_text(event.node, kMaxEventTextBytes);
  if (!first_failure_ && is_failure(event)) first_failure_ = event;
  if (merge(event, now)) return;
  events_.push_back(std::move(event));
  if (events_.size() > kMaxRunEvents) events_.pop_front();
}

/// Only counts the event if the newest events are of the same kind: thousands of nodes that come or
/// go at once must not push all other events out. Returns whether it did.
bool RunHistory::merge(const RunEvent& event, Instant now) {
  if (!may_merge(event.kind) || events_.size() < kMaxLikeEvents) return false;
  const auto alike = [&](const RunEvent& other) {
    return other.kind == event.kind && other.round == event.round;
  };
  if (!std::all_of(events_.rbegin(), events_.rbegin() + kMaxLikeEvents, alike)) return false;
  RunEvent& last = events_.back();
  ++last.like;
  last.number = event.number;  // A reader that knows the earlier number sees that it has grown.
  last.at = now;
  return true;
}

}  // namespace muster
