#include "rendezvous/http/http_metrics.h"

#include <catch2/catch.hpp>

namespace muster::http::testing {

using namespace std::chrono_literals;

TEST_CASE("http metrics: every state and cause has a sample, also at 0", "[unit][http]") {
  const std::string text = metrics_text({}, {}, 1.5);
  CHECK_THAT(text, Catch::Contains("muster_runs{state=\"running\"} 0\n"));
  CHECK_THAT(text, Catch::Contains("muster_nodes{state=\"absent\"} 0\n"));
  CHECK_THAT(text, Catch::Contains("muster_restarts_total{cause=\"workers_failed\"} 0\n"));
  CHECK_THAT(text, Catch::Contains("muster_keep_alive_age_seconds 0\n"));
  CHECK_THAT(text, Catch::Contains("process_start_time_seconds 1.5\n"));
}

TEST_CASE("http metrics: runs that get no further are failed ones, too", "[unit][http]") {
  AllFigures figures;
  figures.runs.counters.runs_failed = 3;
  figures.runs.counters.runs_hopeless = 2;
  const std::string text = metrics_text(figures, {}, 0);
  CHECK_THAT(text, Catch::Contains("muster_runs_ended_total{outcome=\"failed\"} 3\n"));
  CHECK_THAT(text, Catch::Contains("muster_runs_hopeless_total 2\n"));
}

TEST_CASE("http metrics: durability, and the host that leads", "[unit][http]") {
  AllFigures figures;
  const std::string well = metrics_text(figures, {}, 0);
  CHECK_THAT(well, Catch::Contains("muster_state_unrecorded_seconds 0\n"));
  CHECK_THAT(well, Catch::Contains("muster_state_problem 0\n"));
  // Without etcd there is no leader, so the metric has no value.
  CHECK_THAT(well, Catch::Contains("# TYPE muster_etcd_leader gauge\n"));
  CHECK_THAT(well, !Catch::Contains("\nmuster_etcd_leader "));
  figures.runs.unrecorded = 1500ms;
  figures.runs.state_problem = true;
  figures.runs.leads = true;
  const std::string ill = metrics_text(figures, {}, 0);
  CHECK_THAT(ill, Catch::Contains("muster_state_unrecorded_seconds 1.5\n"));
  CHECK_THAT(ill, Catch::Contains("muster_state_problem 1\n"));
  CHECK_THAT(ill, Catch::Contains("muster_etcd_leader 1\n"));
  figures.runs.leads = false;
  CHECK_THAT(metrics_text(figures, {}, 0), Catch::Contains("muster_etcd_leader 0\n"));
}

TEST_CASE("http metrics: the store's requests by operation, and its bytes", "[unit][http]") {
  AllFigures figures;
  StoreTraffic& traffic = figures.store.traffic;
  traffic.count(Query::Set);
  traffic.count(Query::Set);
  traffic.count(Query::CompareSet);
  traffic.count(Query::Barrier);
  traffic.native_messages = 5;
  traffic.received_bytes = 70;
  traffic.sent_bytes = 80;
  CHECK(traffic.all_requests() == 9);
  const std::string text = metrics_text(figures, {}, 0);
  for (const char* sample :
       {"{operation=\"set\"} 2\n", "{operation=\"compare_set\"} 1\n", "{operation=\"barrier\"} 1\n",
        "{operation=\"native\"} 5\n", "{operation=\"wait\"} 0\n"})
    CHECK_THAT(text, Catch::Contains(std::string("muster_store_requests_total") + sample));
  CHECK_THAT(text, Catch::Contains("muster_store_received_bytes_total 70\n"));
  CHECK_THAT(text, Catch::Contains("muster_store_sent_bytes_total 80\n"));
}

TEST_CASE("http metrics: refusals by reason, HTTP requests by status", "[unit][http]") {
  AllFigures figures;
  figures.store.closed["no token"] = 3;
  HttpFigures http;
  http.requests[401] = 2;
  const std::string text = metrics_text(figures, http, 0);
  CHECK_THAT(text,
             Catch::Contains("muster_store_connections_closed_total{reason=\"no token\"} 3\n"));
  CHECK_THAT(text, Catch::Contains("muster_http_requests_total{code=\"401\"} 2\n"));
}

TEST_CASE("http metrics: a histogram's classes add up", "[unit][http]") {
  AllFigures figures;
  for (const Duration took : {Duration(1ms), Duration(40ms), Duration(1h)})
    figures.runs.counters.recovery.add(took);
  const std::string text = metrics_text(figures, {}, 0);
  CHECK_THAT(text, Catch::Contains("muster_recovery_duration_seconds_bucket{le=\"0.005\"} 1\n"));
  CHECK_THAT(text, Catch::Contains("muster_recovery_duration_seconds_bucket{le=\"0.05\"} 2\n"));
  CHECK_THAT(text, Catch::Contains("muster_recovery_duration_seconds_bucket{le=\"+Inf\"} 3\n"));
  CHECK_THAT(text, Catch::Contains("muster_recovery_duration_seconds_count 3\n"));
  CHECK_THAT(text, Catch::Contains("muster_recovery_duration_seconds_sum 3600.041\n"));
}

}  // namespace muster::http::testing
