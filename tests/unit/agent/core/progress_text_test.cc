#include "agent/core/progress_text.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

TEST_CASE("progress_text: a round in torchrun's fields", "[unit][agent]") {
  AgentOptions options;
  options.role = "trainer";
  options.local_world_size = 2;
  RoundFacts round;
  round.group_rank = {1};
  round.group_world_size = 3;
  round.ranks = {
      .base_global_rank = {4}, .world_size = 6, .base_role_rank = 2, .role_world_size = 5};
  round.master_addr = "10.0.0.1";
  round.master_port = 29511;
  round.restart_count = 7;
  CHECK(rendezvous_text(options, round) ==
        std::vector<std::string>{
            "[trainer] Rendezvous complete for workers. Result:", "  restart_count=7",
            "  master_addr=10.0.0.1", "  master_port=29511", "  group_rank=1",
            "  group_world_size=3", "  local_ranks=[0, 1]", "  role_ranks=[2, 3]",
            "  global_ranks=[4, 5]", "  role_world_sizes=[5, 5]", "  global_world_sizes=[6, 6]",
            "  event_log_handler=null"});
}

TEST_CASE("progress_text: the attempts that are left", "[unit][agent]") {
  AgentOptions options;
  options.max_restarts = 3;
  CHECK(restart_text(options, 2) ==
        "[default] Worker group FAILED. 2/3 attempts left; will restart worker group");
}

TEST_CASE("progress_text: the line of a failure names the program as it was given",
          "[unit][agent]") {
  AgentOptions options;
  options.command = {"sh", "-c", "exit 3"};
  AnnounceFailure failure{.rank = {1}, .exit = {.status = 3}};
  CHECK(failure_text(options, failure, 77) ==
        "failed (exitcode: 3) local_rank: 1 (pid: 77) of binary: sh");
  failure.exit = {.killed = true, .status = 11};
  CHECK(failure_text(options, failure, 77) ==
        "failed (exitcode: -11) local_rank: 1 (pid: 77) of binary: sh (SIGSEGV)");
}

TEST_CASE("progress_text: the lines of a restart and of a stop tell what follows",
          "[unit][agent]") {
  AgentOptions options;
  options.max_restarts = 3;
  CHECK(restarting_text(options, 3) ==
        "restarting all workers of this node: 2 of 3 restarts left after this one");
  CHECK(stopping_text(15, std::chrono::seconds(30)) ==
        "Received 15 death signal (SIGTERM): stopping the workers, SIGKILL after 30 s; a second "
        "signal kills them at once");
}

}  // namespace
}  // namespace muster
