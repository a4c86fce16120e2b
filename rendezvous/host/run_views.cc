// RunService: copies of the runs for people, made when they ask.

#include <algorithm>
#include <iterator>

#include "rendezvous/host/run_service.h"

namespace muster {

RunSummary RunService::summary_of(const Run& run) const {
  RunSummary summary = run.rendezvous->summary();
  summary.id = run.id();
  summary.last_event = run.history.last_number();
  summary.first_failure = run.history.first_failure();
  if (run.ended_ms > 0 && run.rendezvous->outcome())
    summary.ended_before =
        std::chrono::milliseconds(std::max<std::int64_t>(0, wall_ms_ - run.ended_ms));
  return summary;
}

RunsView RunService::view_runs(std::size_t offset, std::size_t count, Time time,
                               const RunScope& scope) const {
  if (!scope.all) return view_runs_of(scope, offset, count, time);
  RunsView view{.total = runs_.size(), .now = time.now, .wall = time.wall};
  view.offset = std::min(offset, runs_.size());
  auto run = std::next(runs_.begin(), static_cast<std::ptrdiff_t>(view.offset));
  for (count = std::min(count, kMaxViewedRuns); count > 0 && run != runs_.end(); --count)
    view.runs.push_back(summary_of(*(run++)->second));
  return view;
}

/// Visits every run. Used only for clients whose certificate is limited to some runs.
RunsView RunService::view_runs_of(const RunScope& scope, std::size_t offset, std::size_t count,
                                  Time time) const {
  RunsView view{.now = time.now, .wall = time.wall};
  count = std::min(count, kMaxViewedRuns);
  for (const auto& [key, run] : runs_) {
    if (!scope.admits(run->id())) continue;
    if (view.total++ >= offset && view.runs.size() < count) view.runs.push_back(summary_of(*run));
  }
  view.offset = std::min(offset, view.total);
  return view;
}

std::optional<RunView> RunService::view_run(std::string_view id, NodePage page, Time time) const {
  const Run* run = find(std::string(kStateKeyPrefix).append(id));
  if (run == nullptr) return std::nullopt;
  RunView view = run->rendezvous->view(page.offset, page.nodes, time.now);
  view.summary = summary_of(*run);
  const auto& events = run->history.events();
  view.events.assign(events.begin(), events.end());
  for (NodeView& node : view.nodes)
    node.report = run->reports.find(to_string(node.name));
  if (const auto& failure = view.summary.first_failure)
    view.first_failure_report = run->reports.failure_of(failure->node, failure->round);
  if (!view.first_failure_report) view.first_failure_report = run->failure_report;
  view.wall = time.wall;
  return view;
}

RunsFigures RunService::figures(Instant now) const {
  RunsFigures figures;
  for (const auto& [key, run] : runs_) {
    ++figures.runs[static_cast<std::size_t>(run->rendezvous->run_state())];
    const auto nodes = run->rendezvous->nodes_by_state();
    for (std::size_t state = 0; state < nodes.size(); ++state)
      figures.nodes[state] += nodes[state];
    if (const auto last = run->rendezvous->longest_unheard())
      figures.longest_silent =
          std::max(figures.longest_silent.value_or(Duration::zero()), now - *last);
  }
  figures.counters = counters_;
  if (const auto since = gate_.waiting_since())
    figures.unrecorded = std::max(Duration::zero(), now - *since);
  figures.state_problem = !gate_.works();
  if (options_.shared_state) figures.leads = true;  // Only the leader has a run service.
  return figures;
}

}  // namespace muster
