#include "rendezvous/http/run_view_json.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/time_text.h"

namespace muster {
namespace {

using OrderedJson = nlohmann::ordered_json;  // Keeps an order that is useful for people.

std::string text_of(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

double seconds(Duration duration) {
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(duration);
  return static_cast<double>(milliseconds.count()) / 1000;
}

template <typename Value>
OrderedJson or_null(const std::optional<Value>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}
OrderedJson or_null(const std::optional<Duration>& value) {
  return value ? OrderedJson(seconds(*value)) : OrderedJson(nullptr);
}

OrderedJson or_null(const std::optional<KeptOutHow>& value) {
  return value ? OrderedJson(to_string(*value)) : OrderedJson(nullptr);
}

struct Clock {
  Instant now;
  WallTime wall;

  std::string operator()(Instant at) const {
    const auto ago = std::chrono::duration_cast<std::chrono::microseconds>(now - at);
    return utc_text(std::chrono::microseconds(wall.microseconds) - ago);
  }
};

OrderedJson to_json(const RunEvent& event, const Clock& clock) {
  OrderedJson json{{"number", event.number},
                   {"at", clock(event.at)},
                   {"kind", to_string(event.kind)},
                   {"round", event.round},
                   {"node", event.node.empty() ? OrderedJson(nullptr) : OrderedJson(event.node)},
                   {"group_rank", or_null(event.rank)},
                   {"text", event.text}};
  if (event.cause) json["cause"] = to_string(*event.cause);
  if (event.took) json["took_seconds"] = seconds(*event.took);
  if (event.like > 0) json["like_events"] = event.like;
  return json;
}

OrderedJson budgets_json(const RunSummary& run) {
  if (!run.budgets) return nullptr;
  const auto budget = [](int used, std::optional<int> allowed) {
    if (!allowed) return OrderedJson(nullptr);
    return OrderedJson{{"used", used}, {"allowed", *allowed}};
  };
  return {{"failures", budget(run.costs.failures, run.budgets->failures)},
          {"hangs", budget(run.costs.hangs, run.budgets->policy.hangs)},
          {"nodes", budget(run.costs.nodes, run.budgets->policy.nodes)}};
}

OrderedJson to_json(const RunSummary& run, const Clock& clock) {
  OrderedJson ended = nullptr;
  if (run.ended_before) ended = clock(clock.now - *run.ended_before);
  OrderedJson began = nullptr;
  if (run.began_before) began = clock(clock.now - *run.began_before);
  return {{"id", run.id},
          {"state", to_string(run.state)},
          {"reason", run.reason},
          {"round", run.round},
          {"generation", run.generation},
          {"restarts_used", run.restarts_used},
          {"restarts_allowed", or_null(run.restarts_allowed)},
          {"restart_budgets", budgets_json(run)},
          {"attempts_without_progress", run.costs.without_progress},
          {"min_nodes", or_null(run.min_nodes)},
          {"max_nodes", or_null(run.max_nodes)},
          {"nodes", run.nodes},
          {"nodes_in_round", run.nodes_in_round},
          {"last_event", or_null(run.last_event)},
          {"began_at", began},
          {"began_seconds", or_null(run.began_before)},
          {"up_seconds", or_null(run.up_for)},
          {"ended_at", ended},
          {"ended_seconds", or_null(run.ended_before)},
          {"first_failure",
           run.first_failure ? to_json(*run.first_failure, clock) : OrderedJson(nullptr)}};
}

OrderedJson to_json(const MissingNode& node) {
  return {{"name", to_string(node.name)},
          {"address", node.name.addr},
          {"group_rank", or_null(node.rank)},
          {"expected", node.expected},
          {"why", node.why},
          {"since_seconds", or_null(node.since)}};
}

OrderedJson to_json(const FailureReport& failure) {
  return {{"round", failure.round},
          {"rank", failure.rank},
          {"local_rank", failure.local_rank},
          {"pid", failure.pid},
          {"exit", failure.exit},
          {"because", failure.because},
          {"message", failure.message},
          {"stderr_end", failure.stderr_end}};
}

OrderedJson to_json(const WorkerReport& worker, Duration since, std::optional<int> first_rank) {
  OrderedJson json{{"local_rank", worker.local_rank}, {"rank", nullptr}};
  if (first_rank) json["rank"] = *first_rank + worker.local_rank;
  json["state"] = to_string(worker.state);
  json["pid"] = worker.pid;
  json["exit_code"] = worker.exit_code;
  json["step"] = or_null(worker.step);
  json["progress_seconds"] = nullptr;
  if (worker.progress_before) json["progress_seconds"] = seconds(*worker.progress_before + since);
  return json;
}

// Null for a node without reports: a torchrun node, or an older muster.
OrderedJson report_json(const NodeView& node, const Clock& clock) {
  if (node.report == nullptr) return nullptr;
  const NodeReport& report = node.report->report;
  const Duration since = std::max(Duration::zero(), clock.now - node.report->at);
  OrderedJson workers = OrderedJson::array();
  for (const WorkerReport& worker : report.listed)
    workers.push_back(to_json(worker, since, node.first_rank));
  return {{"seconds", seconds(since)},
          {"round", report.round},
          {"starts", report.starts},
          {"workers_total", report.workers},
          {"workers", std::move(workers)},
          {"failure", report.failure ? to_json(*report.failure) : OrderedJson(nullptr)},
          {"zygote_bytes", or_null(report.zygote_bytes)}};
}

OrderedJson to_json(const Strikes& strikes) {
  return {{"failures", strikes.failures}, {"losses", strikes.losses}};
}

OrderedJson to_json(const KeptOutEntry& entry) {
  return {{"node", entry.node}, {"how", to_string(entry.how)}};
}

OrderedJson to_json(const HostStrikes& host) {
  OrderedJson json = to_json(host.strikes);
  json["address"] = host.host;
  return json;
}

/// The deadline is by the host's wall clock, as the notice came: it does not move between views.
OrderedJson to_json(const DoomView& doom) {
  return {{"seconds", seconds(doom.left)},
          {"deadline", utc_text(std::chrono::milliseconds(doom.deadline_ms))},
          {"reason", doom.reason}};
}

OrderedJson names_json(const std::vector<NodeName>& names) {
  OrderedJson list = OrderedJson::array();
  for (const NodeName& name : names)
    list.push_back(to_string(name));
  return list;
}

OrderedJson to_json(const NoticeView& notice) {
  OrderedJson json = to_json(notice.first);
  json["follow"] = notice.stops ? "stop" : "shrink";
  json["doomed_total"] = notice.doomed_total;
  json["doomed"] = names_json(notice.doomed);
  json["saved_total"] = notice.saved;
  json["silent_total"] = notice.silent_total;
  json["silent"] = names_json(notice.silent);
  return json;
}

OrderedJson to_json(const NodeView& node, const Clock& clock) {
  return {{"name", to_string(node.name)},
          {"address", node.name.addr},
          {"pid", node.name.pid},
          {"kind", node.native ? "muster" : "torchrun"},
          {"state", to_string(node.state)},
          {"group_rank", or_null(node.group_rank)},
          {"first_rank", or_null(node.first_rank)},
          {"local_world_size", or_null(node.local_world)},
          {"role", node.role},
          {"spare", node.spare},
          {"silent_seconds", or_null(node.silent)},
          {"absent_seconds", or_null(node.absent)},
          {"kept_out", or_null(node.kept_out)},
          {"notice", node.notice ? to_json(*node.notice) : OrderedJson(nullptr)},
          {"saved", or_null(node.saved)},
          {"strikes", to_json(node.strikes)},
          {"report", report_json(node, clock)}};
}

std::string utc_of(std::int64_t ms) {
  return utc_text(std::chrono::milliseconds(ms));
}

OrderedJson to_json(const PreviousRun& run, const Clock& clock) {
  const char* state = run.succeeded ? "succeeded" : run.preempted ? "preempted" : "failed";
  OrderedJson json{{"state", state},
                   {"reason", run.why},
                   {"restarts_used", run.restarts_used},
                   {"ended_at", nullptr},
                   {"ended_seconds", nullptr},
                   {"first_failure", nullptr},
                   {"first_failure_report", nullptr}};
  if (run.ended_at_ms) {
    const auto ago = clock.wall.microseconds / 1'000 - *run.ended_at_ms;
    json["ended_at"] = utc_of(*run.ended_at_ms);
    json["ended_seconds"] = static_cast<double>(std::max<std::int64_t>(0, ago)) / 1000;
  }
  if (const auto& failure = run.first_failure)
    json["first_failure"] = {
        {"at", utc_of(failure->at_ms)},
        {"kind", to_string(failure->kind)},
        {"round", failure->round},
        {"node", failure->node.empty() ? OrderedJson(nullptr) : OrderedJson(failure->node)},
        {"group_rank", or_null(failure->rank)},
        {"text", failure->text}};
  if (run.failure_report) json["first_failure_report"] = to_json(*run.failure_report);
  return json;
}

template <typename Values>
OrderedJson list_of(const Values& values) {
  OrderedJson list = OrderedJson::array();
  for (const auto& value : values)
    list.push_back(to_json(value));
  return list;
}
template <typename Values>
OrderedJson list_of(const Values& values, const Clock& clock) {
  OrderedJson list = OrderedJson::array();
  for (const auto& value : values)
    list.push_back(to_json(value, clock));
  return list;
}

}  // namespace

std::string runs_json(const RunsView& view) {
  const Clock clock{view.now, view.wall};
  return text_of({{"at", clock(view.now)},
                  {"total", view.total},
                  {"offset", view.offset},
                  {"runs", list_of(view.runs, clock)}});
}

std::string run_json(const RunView& view) {
  const Clock clock{view.now, view.wall};
  OrderedJson json = to_json(view.summary, clock);
  json["at"] = clock(view.now);
  json["lacking"] = view.lacking;
  json["last_call_seconds"] = or_null(view.last_call);
  json["missing_total"] = view.missing_total;
  json["missing"] = list_of(view.missing);
  json["outcome"] = nullptr;
  if (view.outcome)
    json["outcome"] = {{"succeeded", view.outcome->succeeded},
                       {"preempted", view.outcome->preempted},
                       {"node", view.outcome->who ? OrderedJson(to_string(*view.outcome->who))
                                                  : OrderedJson(nullptr)},
                       {"why", view.outcome->why}};
  json["notice"] = view.notice ? to_json(*view.notice) : OrderedJson(nullptr);
  json["first_failure_report"] = nullptr;
  if (const auto& report = view.first_failure_report)
    json["first_failure_report"] = to_json(*report);
  json["previous"] = nullptr;
  if (view.previous) json["previous"] = to_json(*view.previous, clock);
  json["kept_out"] = list_of(view.kept_out);
  json["strikes"] = list_of(view.strikes);
  json["events"] = list_of(view.events, clock);
  return text_of(json);
}

std::string nodes_json(const RunView& view) {
  const Clock clock{view.now, view.wall};
  return text_of({{"run", view.summary.id},
                  {"at", clock(view.now)},
                  {"total", view.summary.nodes},
                  {"offset", view.offset},
                  {"nodes", list_of(view.nodes, clock)}});
}

std::string steps_json(const RunView& view) {
  const Clock clock{view.now, view.wall};
  // Six digits are enough for people, and keep the answer small.
  const auto rounded = [](double rate) { return std::round(rate * 1e6) / 1e6; };
  OrderedJson rates = OrderedJson::array();
  for (const StepRate& rate : view.steps.rates)
    rates.push_back({{"at", clock(view.steps.begin + rate.index * view.steps.interval)},
                     {"steps_per_second", rounded(rate.mean())},
                     {"slowest", rounded(rate.slowest)},
                     {"slowest_rank", or_null(rate.slowest_rank)}});
  return text_of({{"run", view.summary.id},
                  {"at", clock(view.now)},
                  {"interval_seconds", seconds(view.steps.interval)},
                  {"rates", std::move(rates)}});
}

std::string server_json(const ServerFacts& server) {
  return text_of({{"host", server.host},
                  {"version", server.version},
                  {"port", server.port == 0 ? OrderedJson(nullptr) : OrderedJson(server.port)}});
}

std::string id_json(const std::string& run) {
  return text_of({{"id", run}});
}

std::string answer_json(const NodeAnswered& answer) {
  return text_of({{"node", answer.node},
                  {"attempt", answer.attempt},
                  {"offset", answer.offset},
                  {"next_offset", answer.offset + static_cast<std::int64_t>(answer.bytes.size())},
                  {"size", answer.size},
                  {"base64", base64_encode(answer.bytes)}});
}

std::string done_json(const std::string& text) {
  OrderedJson json{{"ok", true}};
  if (!text.empty()) json["text"] = text;
  return text_of(json);
}

std::string event_json(const RunEvent& event, const RunView& view) {
  return text_of(to_json(event, Clock{view.now, view.wall}));
}

}  // namespace muster
