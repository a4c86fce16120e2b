#include "rendezvous/http/http_metrics.h"

#include <array>
#include <charconv>
#include <initializer_list>
#include <string_view>
#include <utility>

namespace muster::http {
namespace {

std::string number(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end.ptr};
}

// Our label values are plain words, so they need no escapes.
class Text {
 public:
  struct Label {
    std::string_view name;
    std::string_view value;
  };

  void begin(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    text_.append("# HELP ").append(name).append(" ").append(help).append("\n");
    text_.append("# TYPE ").append(name).append(" ").append(type).append("\n");
  }
  void sample(const std::string& value, std::initializer_list<Label> labels = {},
              std::string_view suffix = {}) {
    text_.append(name_).append(suffix);
    char before = '{';
    for (const Label& label : labels) {
      text_ += std::exchange(before, ',');
      text_.append(label.name).append("=\"").append(label.value).append("\"");
    }
    if (labels.size() > 0) text_ += '}';
    text_.append(" ").append(value).append("\n");
  }
  template <typename Count>
  void one(std::string_view name, std::string_view type, std::string_view help, Count value) {
    begin(name, type, help);
    sample(std::to_string(value));
  }
  void histogram(std::string_view name, std::string_view help, const DurationHistogram& of) {
    begin(name, "histogram", help);
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < of.counts.size(); ++i) {
      below += of.counts[i];
      const bool last = i == DurationHistogram::kBounds.size();
      const std::string bound = last ? "+Inf" : number(DurationHistogram::kBounds[i]);
      sample(std::to_string(below), {{"le", bound}}, "_bucket");
    }
    sample(number(of.sum_seconds), {}, "_sum");
    sample(std::to_string(below), {}, "_count");
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  std::string_view name_;
};

void add_runs(Text& text, const RunsFigures& figures) {
  text.begin("muster_runs", "gauge", "Runs that are known here, by state.");
  for (std::size_t i = 0; i < kRunStates; ++i)
    text.sample(std::to_string(figures.runs[i]),
                {{"state", to_string(static_cast<RunStanding>(i))}});
  text.begin("muster_nodes", "gauge", "Nodes of all runs, by state.");
  for (std::size_t i = 0; i < kNodeStates; ++i)
    text.sample(std::to_string(figures.nodes[i]),
                {{"state", to_string(static_cast<NodeState>(i))}});
  text.begin("muster_keep_alive_age_seconds", "gauge",
             "The longest time for which a watched node has been silent; 0 if no node is watched.");
  const Duration silent = figures.longest_silent.value_or(Duration::zero());
  text.sample(number(std::chrono::duration<double>(silent).count()));
  text.begin("muster_state_unrecorded_seconds", "gauge",
             "For how long a change has waited to be durable; 0 if all are, or none is recorded.");
  const Duration waits = figures.unrecorded.value_or(Duration::zero());
  text.sample(number(std::chrono::duration<double>(waits).count()));
  text.one("muster_state_problem", "gauge",
           "1 while changes cannot be made durable; the log of musterd says why.",
           figures.state_problem ? 1 : 0);
  text.begin("muster_etcd_leader", "gauge",
             "1 if this musterd leads those that share its etcd, 0 if it stands by.");
  if (figures.leads) text.sample(*figures.leads ? "1" : "0");
}

void add_counters(Text& text, const RunCounters& counters) {
  const auto total = [&](std::string_view name, std::string_view help, std::uint64_t value) {
    text.one(name, "counter", help, value);
  };
  total("muster_runs_begun_total", "Runs that have begun.", counters.runs_begun);
  text.begin("muster_runs_ended_total", "counter", "Runs that have ended, by outcome.");
  text.sample(std::to_string(counters.runs_succeeded), {{"outcome", "succeeded"}});
  text.sample(std::to_string(counters.runs_failed), {{"outcome", "failed"}});
  text.sample(std::to_string(counters.runs_preempted), {{"outcome", "preempted"}});
  total("muster_runs_hopeless_total",
        "Failed runs that --restart-policy has ended because they got no further.",
        counters.runs_hopeless);
  total("muster_rounds_completed_total", "Rounds that were complete.", counters.rounds);
  total("muster_rounds_resumed_total", "Rounds whose nodes came back to a restarted musterd.",
        counters.rounds_resumed);
  text.begin("muster_restarts_total", "counter", "Restarts, by cause.");
  for (std::size_t i = 0; i < kRestartCauses; ++i)
    text.sample(std::to_string(counters.restarts[i]),
                {{"cause", to_string(static_cast<RestartCause>(i))}});
  total("muster_notices_total", "Notices that a node will go.", counters.notices);
  total("muster_nodes_joined_total", "Joins of muster nodes.", counters.nodes_joined);
  total("muster_nodes_left_total", "Nodes that left on purpose.", counters.nodes_left);
  total("muster_nodes_lost_total", "Nodes that were lost.", counters.nodes_lost);
  text.histogram("muster_rendezvous_duration_seconds",
                 "From the first node of a round to its completion.", counters.rendezvous);
  text.histogram("muster_recovery_duration_seconds",
                 "From a restart to the completion of the next round.", counters.recovery);
}

void add_store(Text& text, const StoreFigures& store) {
  text.one("muster_store_connections", "gauge", "Connections of nodes and workers.",
           store.connections);
  text.one("muster_store_connections_accepted_total", "counter", "Connections that came.",
           store.accepted);
  text.one("muster_store_connections_refused_total", "counter",
           "Connections that were closed at once, because of a limit or their address.",
           store.refused);
  text.begin("muster_store_connections_closed_total", "counter",
             "Connections that musterd closed, the refused ones included, by reason.");
  for (const auto& [reason, count] : store.closed)
    text.sample(std::to_string(count), {{"reason", reason}});
  text.begin("muster_store_requests_total", "counter",
             "Requests to the store, by operation; native: messages of muster nodes.");
  for (std::size_t i = 0; i < kQueryCount; ++i)
    text.sample(std::to_string(store.traffic.requests[i]),
                {{"operation", to_string(static_cast<Query>(i))}});
  text.sample(std::to_string(store.traffic.native_messages), {{"operation", "native"}});
  text.one("muster_store_received_bytes_total", "counter",
           "Bytes that came from nodes and workers, without what TLS adds.",
           store.traffic.received_bytes);
  text.one("muster_store_sent_bytes_total", "counter",
           "Bytes that were sent to nodes and workers, without what TLS adds.",
           store.traffic.sent_bytes);
  text.one("muster_store_waiting_clients", "gauge", "Clients that wait for a key.", store.waiting);
  text.one("muster_store_keys", "gauge", "Keys that have a value.", store.keys);
  text.one("muster_store_bytes", "gauge", "Memory for keys, values, queues, waits and states.",
           store.bytes);
  text.one("muster_store_unread_bytes", "gauge", "Memory of replies that were not read yet.",
           store.unread_bytes);
}

void add_http(Text& text, const HttpFigures& http) {
  text.one("muster_http_connections", "gauge", "Connections of this HTTP server.",
           http.connections);
  text.one("muster_http_connections_refused_total", "counter",
           "HTTP connections that were closed at once, because of a limit.", http.refused);
  text.begin("muster_http_requests_total", "counter", "HTTP requests, by status.");
  for (const auto& [status, count] : http.requests)
    text.sample(std::to_string(count), {{"code", std::to_string(status)}});
}

}  // namespace

std::string metrics_text(const AllFigures& figures, const HttpFigures& http, double began_seconds) {
  Text text;
  text.begin("muster_build_info", "gauge", "Which musterd this is; always 1.");
  text.sample("1", {{"version", MUSTER_VERSION}});
  text.begin("process_start_time_seconds", "gauge", "When musterd began, in seconds since 1970.");
  text.sample(number(began_seconds));
  add_runs(text, figures.runs);
  add_counters(text, figures.runs.counters);
  add_store(text, figures.store);
  add_http(text, http);
  return text.take();
}

}  // namespace muster::http
