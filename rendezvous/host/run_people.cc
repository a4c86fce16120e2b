// RunService: people. Copies of the runs, made when they ask; reports of nodes about their workers
// and questions to nodes, which do not change a run; and the requests of an operator.

#include <algorithm>
#include <iterator>
#include <set>

#include "rendezvous/host/run_guard.h"
#include "rendezvous/host/run_service.h"

namespace muster {
namespace {

constexpr std::size_t kNamedNodesMax = 4;

/// What the node of the first failure has reported about it.
std::optional<FailureReport> failure_report_of(const HostedRun& run) {
  const auto& failure = run.history.first_failure();
  if (!failure) return run.failure_report;
  auto report = run.reports.failure_of(failure->node, failure->round);
  return report ? report : run.failure_report;
}

/// The names of the nodes that have joined lately: "node0, node1 and 2 more".
std::string joined_nodes_text(const RunHistory& history) {
  std::set<std::string> names;
  for (const RunEvent& event : history.events())
    if (event.kind == RunEvent::Kind::NodeJoined) names.insert(event.node);
  std::string text;
  std::size_t shown = 0;
  for (const std::string& name : names)
    if (shown++ < kNamedNodesMax) text += (text.empty() ? "" : ", ") + name;
  return text +
         (shown > kNamedNodesMax ? " and " + std::to_string(shown - kNamedNodesMax) + " more" : "");
}

/// Where the output of a worker is when no node of its run is there any more.
std::string ended_text(const HostedRun& run, int rank) {
  std::string text = "the run has ended, and its nodes are gone";
  const auto report = failure_report_of(run);
  const auto& failure = run.history.first_failure();
  if (const std::string nodes = joined_nodes_text(run.history);
      report && failure && report->rank == rank)
    text += ": rank " + std::to_string(rank) + " was on " + failure->node;
  else if (!nodes.empty())
    text += ": its nodes were " + nodes;
  return text +
         "; the output is in the log folder of the node (--log-dir), if it had one, and `musterctl "
         "why` has the last lines of the first failure";
}

}  // namespace

// --- views ---------------------------------------------------------------------------------------

RunSummary RunService::summary_of(const Run& run, Time time) const {
  RunSummary summary = run.rendezvous->summary();
  summary.id = run.id();
  summary.last_event = run.history.last_number();
  summary.first_failure = run.history.first_failure();
  // The time of the view: nothing else tells an idle host how late it is.
  const std::int64_t wall_ms = std::max(wall_ms_, time.wall.microseconds / 1'000);
  const auto before = [&](std::int64_t ms) {
    return std::chrono::milliseconds(std::max<std::int64_t>(0, wall_ms - ms));
  };
  if (run.began_ms > 0) summary.began_before = before(run.began_ms);
  if (run.ended_ms > 0 && run.rendezvous->outcome()) summary.ended_before = before(run.ended_ms);
  if (run.up_since && summary.state == RunStanding::Running)
    summary.up_for = std::max(Duration::zero(), time.now - *run.up_since);
  return summary;
}

RunsView RunService::view_runs(std::size_t offset, std::size_t count, Time time,
                               const RunScope& scope) const {
  if (!scope.all) return view_runs_of(scope, offset, count, time);
  RunsView view{.total = runs_.size(), .now = time.now, .wall = time.wall};
  view.offset = std::min(offset, runs_.size());
  auto run = std::next(runs_.begin(), static_cast<std::ptrdiff_t>(view.offset));
  for (count = std::min(count, kMaxViewedRuns); count > 0 && run != runs_.end(); --count)
    view.runs.push_back(summary_of(*(run++)->second, time));
  return view;
}

/// Visits every run. Used only for clients whose certificate is limited to some runs.
RunsView RunService::view_runs_of(const RunScope& scope, std::size_t offset, std::size_t count,
                                  Time time) const {
  RunsView view{.now = time.now, .wall = time.wall};
  count = std::min(count, kMaxViewedRuns);
  for (const auto& [key, run] : runs_) {
    if (!scope.admits(run->id())) continue;
    if (view.total++ >= offset && view.runs.size() < count)
      view.runs.push_back(summary_of(*run, time));
  }
  view.offset = std::min(offset, view.total);
  return view;
}

std::optional<RunView> RunService::view_run(std::string_view id, NodePage page, Time time) const {
  const Run* run = find(std::string(kStateKeyPrefix).append(id));
  if (run == nullptr) return std::nullopt;
  RunView view = run->rendezvous->view(page.offset, page.nodes, time.now);
  view.summary = summary_of(*run, time);
  view.steps = run->steps.series();
  view.previous = run->previous;
  const auto& events = run->history.events();
  view.events.assign(events.begin(), events.end());
  for (NodeView& node : view.nodes)
    node.report = run->reports.find(to_string(node.name));
  view.first_failure_report = failure_report_of(*run);
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
  figures.counters = log_.counters();
  if (const auto since = gate_.waiting_since())
    figures.unrecorded = std::max(Duration::zero(), now - *since);
  figures.state_problem = !gate_.works();
  if (options_.shared_state) figures.leads = true;  // Only the leader has a run service.
  return figures;
}

// --- reports and questions -----------------------------------------------------------------------

void RunService::receive(ConnectionId from, Client& client, NodeReport report, Instant now) {
  if (!client.reports.admit(now)) return;
  Run& run = *client.run;
  if (const NodeName* name = run.rendezvous->name_of(from)) {
    client.node = to_string(*name);
    if (const auto before = run.reports.find(client.node))
      run.steps.add(before->report, before->at, report, run.rendezvous->first_rank_of(*name), now);
    run.reports.add(client.node, std::move(report), now);
  } else if (!client.node.empty() && report.failure) {
    // A node that has ended is not a member any more, but may still report why.
    run.reports.add_failure(client.node, *std::move(report.failure));
  }
  if (!run.logged.end) return;
  // The last lines of a worker that has failed come after the end of the run.
  const auto before = run.failure_report;
  note_failure_report(run);
  if (run.failure_report == before) return;
  run.rendezvous->record_again();
  finish_change(run, now);
}

/// For an ended run: keeps what its node says about the first failure.
void RunService::note_failure_report(Run& run) {
  const auto& failure = run.history.first_failure();
  if (!failure || options_.kept_ended_runs == 0) return;
  if (auto report = run.reports.failure_of(failure->node, failure->round))
    run.failure_report = std::move(report);
}

/// The connection of the muster node `name`, if it answers questions.
std::optional<ConnectionId> RunService::native_client(const Run& run, const NodeName& name) const {
  for (const std::uint32_t id : run.clients) {
    const auto known = clients_.find(id);
    if (known == clients_.end() || !known->second.front().answers) continue;
    const NodeName* its = run.rendezvous->name_of({id});
    if (its != nullptr && *its == name) return ConnectionId{id};
  }
  return std::nullopt;
}

std::optional<std::string> RunService::ask(std::string_view id, int rank, NodeAsked question,
                                           Time time) {
  const Run* run = find(std::string(kStateKeyPrefix).append(id));
  if (run == nullptr) return std::nullopt;
  if (questions_.is_full()) return "too many questions wait for their nodes: ask again later";
  for (std::size_t offset = 0; offset < run->rendezvous->members(); offset += kMaxViewedNodes) {
    const RunView view = run->rendezvous->view(offset, kMaxViewedNodes, time.now);
    for (const NodeView& node : view.nodes) {
      if (!node.first_rank || !node.local_world) continue;
      if (rank < *node.first_rank || rank - *node.first_rank >= *node.local_world) continue;
      const auto to = native_client(*run, node.name);
      if (!to)
        return "node " + to_string(node.name) + " cannot be asked: " +
               (node.absent || node.state == NodeState::Finished ? "it is away"
                                                                 : "its muster is an older one");
      question.to = *to;
      question.local_rank = rank - *node.first_rank;
      questions_.ask(question);
      return std::string();
    }
  }
  if (run->rendezvous->outcome()) return ended_text(*run, rank);
  return "no muster node of the round has rank " + std::to_string(rank) +
         ": `musterctl nodes` shows which ranks each node has";
}

// --- operators -----------------------------------------------------------------------------------

std::optional<std::string> RunService::operate(std::string_view id, const OperatorAsked& request,
                                               Time time, std::optional<std::uint64_t> number) {
  record_wall_clock(time);
  OperatorAsked asked = request;
  if (asked.notice) asked.deadline_ms = wall_ms_ + *asked.notice / std::chrono::milliseconds(1);
  Run* run = find(std::string(kStateKeyPrefix).append(id));
  if (run == nullptr) return std::nullopt;
  // The operation cannot be recorded now, so the next host would not know of it.
  if (options_.shared_state && !gate_.works())
    return "changes cannot be recorded now (" + gate_.problem() + "): ask again later";
  std::string objection = run->rendezvous->objection_to(asked);
  if (!objection.empty()) return objection;
  const bool done = guard(*run, time.now, [&] {
    if (run->rendezvous->has_effect(asked)) log_.operation(*run, asked, time.now);
    apply(*run, run->rendezvous->step(asked, time.now), time.now);
    run->notify_pending = true;
    finish_change(*run, time.now);
  });
  if (!done) return "this has broken the run: see the log of musterd";
  if (!number) return std::string();
  std::string text = run->rendezvous->operator_answer();
  if (!text.empty() && !gate_.works())
    text += "\nwarning: this change cannot be recorded now (" + gate_.problem() +
            "): a musterd that is started again before it is recorded does not know it";
  gate_.send(OperatorAnswered{*number, std::move(text)});
  return std::string();
}

}  // namespace muster
