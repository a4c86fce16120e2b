#include "launcher/plan_text.h"
#include "tests/unit/launcher/plan_fixture.h"

namespace muster {
namespace {

using testing::PlanFixture;

TEST_CASE_METHOD(PlanFixture, "launch_text: the launch in torchrun's fields", "[unit][launcher]") {
  const std::vector<std::string> words = {"--nnodes=1:2",
                                          "--nproc-per-node=3",
                                          "--rdzv-id=job",
                                          "--rdzv-backend",
                                          "c10d",
                                          "--rdzv-endpoint=h:29400",
                                          "--rdzv-conf",
                                          "join_timeout=60",
                                          "--max-restarts=4",
                                          "--no-python",
                                          "--signals-to-handle",
                                          "SIGTERM",
                                          "--monitor-interval=0.5",
                                          "prog"};
  CHECK(launch_text(flags(words), agent(words)) ==
        std::vector<std::string>{
            "Starting elastic_operator with launch configs:", "  entrypoint               : prog",
            "  min_nodes                : 1", "  max_nodes                : 2",
            "  nproc_per_node           : 3", "  run_id                   : job",
            "  rdzv_backend             : c10d", "  rdzv_endpoint            : h:29400",
            "  rdzv_configs             : {'join_timeout': '60'}", "  max_restarts             : 4",
            "  monitor_interval         : 0.5", "  log_dir                  : None",
            "  metrics_cfg              : {}", "  event_log_handler        : null",
            "  numa_options             : None", "  signals_to_handle        : SIGTERM",
            "  duplicate_stdout_filters : []", "  duplicate_stderr_filters : []"});
}

}  // namespace
}  // namespace muster
