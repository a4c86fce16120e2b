#include "agent/core/event_record.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace muster::testing {
namespace {

using nlohmann::json;

EventContext context() {
  return {.run_id = "run",
          .role = "tr",
          .hostname = "host",
          .rdzv_backend = "c10d",
          .entry_point = "python",
          .group_rank = GroupRank{0},
          .group_world_size = 1,
          .agent_restarts = 2,
          .total_run_time_s = 9,
          .now_ms = 1795252105123};
}

const AssignedRanks kRanks{
    .base_global_rank = {4}, .world_size = 8, .base_role_rank = 2, .role_world_size = 6};

TEST_CASE("events: the agent's events have torchrun's fields", "[unit][agent]") {
  EventContext first = context();
  first.group_rank.reset();
  first.group_world_size.reset();
  CHECK(agent_event(first, "RENDEZVOUS", 2.5) ==
        R"({"name": "torchelastic.worker.status.RENDEZVOUS", "source": "AGENT", )"
        R"("timestamp": 1795252105123, "metadata": {"run_id": "run", "global_rank": null, )"
        R"("group_rank": null, "worker_id": null, "role": "tr", "hostname": "host", )"
        R"("state": "RENDEZVOUS", "total_run_time": 9, "rdzv_backend": "c10d", )"
        R"("raw_error": null, "metadata": "{\"group_world_size\": null, )"
        R"(\"entry_point\": \"python\"}", "agent_restarts": 2, "duration_ms": 2.5}})");
  const json failed = json::parse(agent_event(context(), "FAILED", std::nullopt, "why"));
  CHECK(failed["metadata"]["raw_error"] == "why");
  CHECK(failed["metadata"]["duration_ms"] == nullptr);
  CHECK(failed["metadata"]["group_rank"] == 0);
}

TEST_CASE("events: a worker's event has its ranks in lists of one element", "[unit][agent]") {
  const json event = json::parse(
      worker_event(context(), kRanks, {.state = "START", .local_rank = {1}, .pid = 77}));
  CHECK(event["source"] == "WORKER");
  CHECK(event["metadata"]["global_rank"] == 5);
  CHECK(event["metadata"]["worker_id"] == "77");
  CHECK(event["metadata"]["metadata"] ==
        R"({"group_world_size": 1, "entry_point": "python", "local_rank": [1], "role_rank": [3], )"
        R"("role_world_size": [6], "exit_code": [null], "worker_pid": [null]})");
}

TEST_CASE("events: a failure has its exit code and its error file", "[unit][agent]") {
  const auto failure = [](std::optional<int> code, std::string text) {
    return json::parse(worker_event(context(), kRanks,
                                    {.state = "FAILED",
                                     .local_rank = {0},
                                     .pid = 78,
                                     .failed = true,
                                     .exit_code = code,
                                     .error_text = std::move(text)}))["metadata"];
  };
  const json inner = json::parse(failure(-15, "")["metadata"].get<std::string>());
  CHECK(inner["exit_code"] == json{-15});
  CHECK(inner["worker_pid"] == json{78});
  const json left = json::parse(failure(std::nullopt, "")["metadata"].get<std::string>());
  CHECK(left["exit_code"] == json::parse("[null]"));  // The worker could not be killed.
  CHECK(failure(-15, "")["raw_error"] == R"({"message": "<NONE>"})");
  CHECK(failure(3, "")["raw_error"] ==
        R"({"message": "<NONE>", "errorTraits": {"category": "system_terminated_error", )"
        R"("retryability": "False"}})");
  CHECK(failure(1, R"({"message":{"message":"E: ü","extraInfo":{"timestamp":"5"}},"x":[1,{}]})")
            ["raw_error"] ==
        R"({"message": {"message": "E: \u00fc", "extraInfo": {"timestamp": "5"}}, "x": [1, {}]})");
  // A torn file, and one nested so deep that reading it would be dangerous, count as no file.
  CHECK(failure(-9, R"({"message": "x)")["raw_error"] == R"({"message": "<NONE>"})");
  CHECK(failure(-9, R"({"message": "x", "y": )" + std::string(500000, '['))["raw_error"] ==
        R"({"message": "<NONE>"})");
}

TEST_CASE("events: the entry point is the program, or torchrun's name for --run-path",
          "[unit][agent]") {
  AgentOptions options;
  options.command = {"/usr/bin/python3", "-u", "x.py"};
  options.entry_point = "x.py";
  CHECK(event_context(options, "h").entry_point == "python3");
  options.runs_path = true;
  options.entry_point = "run_script_path";
  CHECK(event_context(options, "h").entry_point == "run_script_path");
  options.rendezvous.backend_name = "static";
  CHECK(event_context(options, "h").rdzv_backend == "static");
}

}  // namespace
}  // namespace muster::testing
