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
