#include "agent/core/worker_env.h"

#include <algorithm>
#include <map>

#include <catch2/catch.hpp>

namespace muster {
namespace {

struct WorkerEnvTest {
  WorkerEnvTest() {
    options.local_world_size = 2;
    options.run_id = "digits";
    options.role = "trainer";
    options.max_restarts = 3;
    options.signals_to_handle_text = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
    round = {.group_rank = {1},
             .group_world_size = 3,
             .ranks = {{4}, 9, 1, 5},
             .master_addr = "node1",
             .master_port = 43210,
             .restart_count = 2,
             .use_agent_store = true};
    worker = {.local_rank = {1}, .error_file = "/logs/1/error.json", .job_token = "token7"};
  }
  std::vector<std::string> entries() const { return worker_env(inherited, options, round, worker); }
  // Checks that no name occurs twice.
  std::map<std::string, std::string> variables() const {
    std::map<std::string, std::string> result;
    for (const std::string& entry : entries()) {
      const std::size_t equals = entry.find('=');
      REQUIRE(equals != std::string::npos);
      REQUIRE(result.emplace(entry.substr(0, equals), entry.substr(equals + 1)).second);
    }
    return result;
  }

  std::vector<std::string> inherited;
  AgentOptions options;
  RoundFacts round;
  WorkerIdentity worker;
};

TEST_CASE_METHOD(WorkerEnvTest, "worker_env: a plug-in's changes are the last word",
                 "[unit][agent]") {
  inherited = {"RANK=77", "PLUG_IN=no"};
  worker.changes = {
      .set = {{"TORCHELASTIC_ERROR_FILE", "/its/error.json"}, {"PLUG_IN", "yes"}, {"NEW", "1"}},
      .unset = {"RANK", "ROLE_NAME"}};
  const auto variables = this->variables();
  CHECK(variables.at("TORCHELASTIC_ERROR_FILE") == "/its/error.json");
  CHECK(variables.at("PLUG_IN") == "yes");
  CHECK(variables.at("NEW") == "1");
  CHECK(variables.at("RANK") == "77");  // As under torchrun: the inherited value is visible again.
  CHECK_FALSE(variables.contains("ROLE_NAME"));
  CHECK(variables.at("MUSTER_JOB") == "token7");
}

TEST_CASE_METHOD(WorkerEnvTest, "worker_env: a plug-in gets the same variables as from torchrun",
                 "[unit][agent]") {
  inherited = {"HOME=/root", "OMP_NUM_THREADS=4", "TORCH_NCCL_ASYNC_ERROR_HANDLING=3",
               "MUSTER_JOB=outer"};
  const auto announced = announced_env(inherited, options, round, {1});
  const std::map<std::string, std::string> variables(announced.begin(), announced.end());
  CHECK(variables.size() == announced.size());
  CHECK(variables == std::map<std::string, std::string>{{"LOCAL_RANK", "1"},
                                                        {"RANK", "5"},
                                                        {"GROUP_RANK", "1"},
                                                        {"NODE_RANK", "1"},
                                                        {"ROLE_RANK", "2"},
                                                        {"ROLE_NAME", "trainer"},
                                                        {"LOCAL_WORLD_SIZE", "2"},
                                                        {"WORLD_SIZE", "9"},
                                                        {"GROUP_WORLD_SIZE", "3"},
                                                        {"ROLE_WORLD_SIZE", "5"},
                                                        {"MASTER_ADDR", "node1"},
                                                        {"MASTER_PORT", "43210"},
                                                        {"TORCHELASTIC_RESTART_COUNT", "2"},
                                                        {"TORCHELASTIC_MAX_RESTARTS", "3"},
                                                        {"TORCHELASTIC_RUN_ID", "digits"},
                                                        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"},
                                                        {"OMP_NUM_THREADS", "4"}});
}

TEST_CASE_METHOD(WorkerEnvTest,
                 "worker_env: the worker gets all variables of torchrun, and two more",
                 "[unit][agent]") {
  CHECK(variables() == std::map<std::string, std::string>{
                           {"LOCAL_RANK", "1"},
                           {"RANK", "5"},
                           {"GROUP_RANK", "1"},
                           {"ROLE_RANK", "2"},
                           {"ROLE_NAME", "trainer"},
                           {"LOCAL_WORLD_SIZE", "2"},
                           {"WORLD_SIZE", "9"},
                           {"GROUP_WORLD_SIZE", "3"},
                           {"ROLE_WORLD_SIZE", "5"},
                           {"MASTER_ADDR", "node1"},
                           {"MASTER_PORT", "43210"},
                           {"TORCHELASTIC_RESTART_COUNT", "2"},
                           {"TORCHELASTIC_MAX_RESTARTS", "3"},
                           {"TORCHELASTIC_RUN_ID", "digits"},
                           {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                           {"TORCHELASTIC_ERROR_FILE", "/logs/1/error.json"},
                           {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
                           {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
                           {"NODE_RANK", "1"},
                           {"MUSTER_JOB", "token7"},
                       });
}

TEST_CASE_METHOD(WorkerEnvTest, "worker_env: nothing of a surrounding launcher is left",
                 "[unit][agent]") {
  const auto clean = variables();
  for (const auto& [name, value] : clean)
    if (name != "NODE_RANK" && name != "MUSTER_JOB" && name != "TORCH_NCCL_ASYNC_ERROR_HANDLING")
      inherited.push_back(name + "=of the launcher outside");
  CHECK(variables() == clean);
}

TEST_CASE_METHOD(WorkerEnvTest,
                 "worker_env: NODE_RANK stays as it was set, but for one of a muster outside",
                 "[unit][agent]") {
  CHECK(variables().at("NODE_RANK") == "1");
  inherited = {"NODE_RANK=7"};
  CHECK(variables().at("NODE_RANK") == "7");
  inherited.emplace_back("MUSTER_JOB=outer");
  CHECK(variables().at("NODE_RANK") == "1");
}

TEST_CASE_METHOD(WorkerEnvTest, "worker_env: the rest is inherited, in order and unchanged",
                 "[unit][agent]") {
  inherited = {"PATH=/bin", "RANK=77", "EMPTY=", "=x", "EQUALS=a=b=", "LINES=a\nb", "Z=1", "A=2"};
  const auto env = entries();
  CHECK(std::vector<std::string>(env.begin(), env.begin() + 7) ==
        std::vector<std::string>{"PATH=/bin", "EMPTY=", "=x", "EQUALS=a=b=", "LINES=a\nb", "Z=1",
                                 "A=2"});
  CHECK(env[7] == "LOCAL_RANK=1");
  CHECK(entries() == env);  // The result does not change.
}

TEST_CASE_METHOD(WorkerEnvTest,
                 "worker_env: the first of two entries of one name counts, as in getenv",
                 "[unit][agent]") {
  inherited = {"X=first", "X=second", "no equals sign", ""};
  const auto env = variables();
  CHECK(env.at("X") == "first");
  CHECK(env.size() == 21);
}

TEST_CASE_METHOD(WorkerEnvTest, "worker_env: settings of the user's win over defaults",
                 "[unit][agent]") {
  options.set_omp_num_threads = true;
  CHECK(variables().at("OMP_NUM_THREADS") == "1");
  inherited = {"OMP_NUM_THREADS=8", "TORCH_NCCL_ASYNC_ERROR_HANDLING=3"};
  CHECK(variables().at("OMP_NUM_THREADS") == "8");
  CHECK(variables().at("TORCH_NCCL_ASYNC_ERROR_HANDLING") == "3");
  inherited = {"OMP_NUM_THREADS=", "TORCH_NCCL_ASYNC_ERROR_HANDLING="};
  CHECK(variables().at("OMP_NUM_THREADS").empty());  // Set, although to an empty value.
  CHECK(variables().at("TORCH_NCCL_ASYNC_ERROR_HANDLING").empty());
  inherited.clear();
  options.set_omp_num_threads = false;
  CHECK_FALSE(variables().contains("OMP_NUM_THREADS"));
}

TEST_CASE_METHOD(WorkerEnvTest, "worker_env: switches of torchelastic that are the user's stay",
                 "[unit][agent]") {
  inherited = {"TORCHELASTIC_TIMER_FILE=/tmp/fifo", "TORCHELASTIC_ENABLE_FILE_TIMER=1",
               "PET_NNODES=2"};
  CHECK(variables().at("TORCHELASTIC_TIMER_FILE") == "/tmp/fifo");
  CHECK(variables().at("TORCHELASTIC_ENABLE_FILE_TIMER") == "1");
  CHECK(variables().at("PET_NNODES") == "2");
}

TEST_CASE_METHOD(WorkerEnvTest,
                 "worker_env: the variables show a missing log directory and agent's store",
                 "[unit][agent]") {
  worker.error_file.clear();
  round.use_agent_store = false;
  CHECK(variables().at("TORCHELASTIC_ERROR_FILE").empty());
  CHECK(variables().at("TORCHELASTIC_USE_AGENT_STORE") == "False");
}

TEST_CASE_METHOD(WorkerEnvTest, "worker_env: a virtual local rank is 0 with a device of its own",
                 "[unit][agent]") {
  options.virtual_local_rank = true;
  CHECK(variables().at("LOCAL_RANK") == "0");
  CHECK(variables().at("CUDA_VISIBLE_DEVICES") == "1");
  CHECK(variables().at("RANK") == "5");
  inherited = {"CUDA_VISIBLE_DEVICES=4, GPU-8a1b ,6"};
  CHECK(variables().at("CUDA_VISIBLE_DEVICES") == "GPU-8a1b");
  worker.local_rank = {0};
  CHECK(variables().at("CUDA_VISIBLE_DEVICES") == "4");
  inherited = {"CUDA_VISIBLE_DEVICES="};  // One entry, which is empty.
  CHECK(variables().at("CUDA_VISIBLE_DEVICES").empty());
}

TEST_CASE_METHOD(WorkerEnvTest, "worker_env: HIP_VISIBLE_DEVICES goes first, and both are set",
                 "[unit][agent]") {
  options.virtual_local_rank = true;
  inherited = {"CUDA_VISIBLE_DEVICES=4,5,6", "HIP_VISIBLE_DEVICES=7, 3 ,1"};
  CHECK(variables().at("CUDA_VISIBLE_DEVICES") == "3");
  CHECK(variables().at("HIP_VISIBLE_DEVICES") == "3");
  inherited = {"HIP_VISIBLE_DEVICES=7,3,1"};
  CHECK(variables().at("CUDA_VISIBLE_DEVICES") == "3");
  CHECK(variables().at("HIP_VISIBLE_DEVICES") == "3");
  inherited = {"CUDA_VISIBLE_DEVICES=4,5,6", "HIP_VISIBLE_DEVICES="};  // As if it were not set.
  CHECK(variables().at("CUDA_VISIBLE_DEVICES") == "5");
  CHECK(variables().at("HIP_VISIBLE_DEVICES").empty());
  inherited = {};
  CHECK(variables().count("HIP_VISIBLE_DEVICES") == 0);
  // --nproc-per-node=gpu:9,8 counts NVIDIA's GPUs.
  options.worker_environment["CUDA_VISIBLE_DEVICES"] = "9,8,7";
  inherited = {"CUDA_VISIBLE_DEVICES=9,8,7", "HIP_VISIBLE_DEVICES=0,1,2"};
  CHECK(variables().at("CUDA_VISIBLE_DEVICES") == "8");
  CHECK(variables().at("HIP_VISIBLE_DEVICES") == "0,1,2");
}

TEST_CASE_METHOD(WorkerEnvTest, "worker_env: without a virtual local rank all devices are visible",
                 "[unit][agent]") {
  inherited = {"CUDA_VISIBLE_DEVICES=7"};
  CHECK(variables().at("CUDA_VISIBLE_DEVICES") == "7");
}

TEST_CASE_METHOD(WorkerEnvTest, "worker_env: a job inside a job is marked with both",
                 "[unit][agent]") {
  inherited = {"MUSTER_JOB=outer"};
  CHECK(variables().at("MUSTER_JOB") == "token7");
  CHECK(variables().at("MUSTER_OUTER_JOBS") == "outer");
  inherited = {"MUSTER_JOB=middle", "MUSTER_OUTER_JOBS=outermost:outer"};
  CHECK(variables().at("MUSTER_OUTER_JOBS") == "outermost:outer:middle");
  inherited = {"MUSTER_JOB=token7"};  // The agent's own environment has its job's token.
  CHECK_FALSE(variables().contains("MUSTER_OUTER_JOBS"));
}

TEST_CASE("worker_env: a descendant is known by its mark, at any depth", "[unit][agent]") {
  CHECK(marks_job("MUSTER_JOB=abc", "abc"));
  CHECK(marks_job("MUSTER_OUTER_JOBS=abc", "abc"));
  CHECK(marks_job("MUSTER_OUTER_JOBS=x:abc:y", "abc"));
  CHECK(marks_job("MUSTER_OUTER_JOBS=x:y:abc", "abc"));
  CHECK_FALSE(marks_job("MUSTER_JOB=abcd", "abc"));
  CHECK_FALSE(marks_job("MUSTER_JOB=", ""));
  CHECK_FALSE(marks_job("MUSTER_OUTER_JOBS=xabc:abcy", "abc"));
  CHECK_FALSE(marks_job("XMUSTER_JOB=abc", "abc"));
  CHECK_FALSE(marks_job("MUSTER_JOB", "abc"));
  CHECK_FALSE(marks_job("", "abc"));
}

}  // namespace
}  // namespace muster
