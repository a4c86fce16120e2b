#include "muster/environment.h"

#include <array>
#include <cstdlib>
#include <map>

#include <catch2/catch.hpp>

#include "environment_source.h"

namespace muster {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

Environment read(const Variables& variables, const std::vector<std::string>& arguments = {}) {
  return read_environment(
      [&variables](std::string_view name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        if (found == variables.end()) return std::nullopt;
        return found->second;
      },
      arguments);
}

std::string error_of(const Variables& variables, const std::vector<std::string>& arguments = {}) {
  try {
    read(variables, arguments);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The variables that torchrun 2.13 sets for the third of four workers on two nodes.
Variables launched() {
  return {{"RANK", "2"},
          {"WORLD_SIZE", "4"},
          {"LOCAL_RANK", "0"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"GROUP_RANK", "1"},
          {"GROUP_WORLD_SIZE", "2"},
          {"ROLE_RANK", "2"},
          {"ROLE_NAME", "trainer"},
          {"ROLE_WORLD_SIZE", "4"},
          {"MASTER_ADDR", "node0"},
          {"MASTER_PORT", "29400"},
          {"TORCHELASTIC_RESTART_COUNT", "1"},
          {"TORCHELASTIC_MAX_RESTARTS", "3"},
          {"TORCHELASTIC_RUN_ID", "run7"},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
          {"TORCHELASTIC_ERROR_FILE", "/tmp/error.json"}};
}

Variables changed(Variables variables, std::string_view name, std::string_view value) {
  variables.insert_or_assign(std::string(name), std::string(value));
  return variables;
}

Variables without(Variables variables, std::string_view name) {
  variables.erase(variables.find(name));
  return variables;
}

}  // namespace

TEST_CASE("environment: every variable of a launcher is read", "[unit][sdk]") {
  const Environment expected{.launched_by = LaunchedBy::Launcher,
                             .rank = 2,
                             .world_size = 4,
                             .local_rank = 0,
                             .local_world_size = 2,
                             .group_rank = 1,
                             .group_world_size = 2,
                             .role_rank = 2,
                             .role_world_size = 4,
                             .role_name = "trainer",
                             .master_addr = "node0",
                             .master_port = 29400,
                             .restart_count = 1,
                             .max_restarts = 3,
                             .run_id = "run7",
                             .use_agent_store = true,
                             .error_file = "/tmp/error.json"};
  CHECK(read(launched()) == expected);
}

TEST_CASE("environment: without variables it is a single process", "[unit][sdk]") {
  CHECK(read({}) == Environment{});
  CHECK(read({{"RANK", ""}, {"WORLD_SIZE", ""}}) == Environment{});
}

TEST_CASE("environment: an error names a missing variable and its launcher", "[unit][sdk]") {
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    const std::string error = error_of(without(launched(), name));
    INFO(name << ": " << error);
    CHECK(error.starts_with(std::string(name) + " is not set"));
    CHECK(error.find("muster, torchrun") != std::string::npos);
    // As in torch, an empty variable counts as not set.
    CHECK(error_of(changed(launched(), name, "")) == error);
  }
}

TEST_CASE("environment: a wrong variable is named with its value and bounds", "[unit][sdk]") {
  const auto [name, value, expected] = GENERATE(table<std::string, std::string, std::string>(
      {{"RANK", "4", "0 to 3"},
       {"RANK", "-1", "0 to 3"},
       {"RANK", "2 ", "0 to 3"},
       {"RANK", "0x1", "0 to 3"},
       {"WORLD_SIZE", "0", "from 1 on"},
       {"WORLD_SIZE", "99999999999", "from 1 on"},
       {"LOCAL_RANK", "two", "0 to 3"},
       {"LOCAL_WORLD_SIZE", "5", "1 to 4"},
       {"GROUP_RANK", "2", "0 to 1"},
       {"MASTER_PORT", "65536", "0 to 65535"},
       {"ROLE_RANK", "4", "0 to 3"},
       {"TORCHELASTIC_RESTART_COUNT", "-1", "from 0 on"}}));
  const std::string error = error_of(changed(launched(), name, value));
  INFO(error);
  CHECK(error.starts_with(name + "=\"" + value + "\": expected a whole number"));
  CHECK(error.find(expected) != std::string::npos);
}

TEST_CASE("environment: the local rank must be below the local world size", "[unit][sdk]") {
  const std::string error = error_of(changed(launched(), "LOCAL_RANK", "2"));
  CHECK(error.starts_with("LOCAL_WORLD_SIZE=\"2\": expected more than the local rank 2"));
}

TEST_CASE("environment: the five variables of a hand-made start are enough", "[unit][sdk]") {
  const Environment environment = read({{"RANK", "3"},
                                        {"WORLD_SIZE", "4"},
                                        {"LOCAL_RANK", "1"},
                                        {"LOCAL_WORLD_SIZE", "2"},
                                        {"MASTER_ADDR", "h"},
                                        {"MASTER_PORT", "1"}});
  CHECK(environment.group_rank == 1);
  CHECK(environment.group_world_size == 2);
  CHECK(environment.role_rank == 3);
  CHECK(environment.role_world_size == 4);
  CHECK(environment.run_id == "none");
  CHECK_FALSE(environment.use_agent_store);
}

TEST_CASE("environment: the four variables that Python needs are enough", "[unit][sdk]") {
  Variables variables{
      {"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}};
  const Environment environment = read(variables);
  CHECK(environment.local_rank == 0);
  CHECK(environment.local_world_size == 1);
  CHECK(environment.group_rank == 3);
  CHECK(environment.group_world_size == 4);
  // One of the two variables shows that there may be more processes on the node: then both are
  // required.
  CHECK(error_of(changed(variables, "LOCAL_RANK", "0")).starts_with("LOCAL_WORLD_SIZE is not set"));
  CHECK(error_of(changed(variables, "LOCAL_WORLD_SIZE", "2")).starts_with("LOCAL_RANK is not set"));
  CHECK(read(changed(variables, "LOCAL_WORLD_SIZE", "1")).local_rank == 0);
}

TEST_CASE("environment: the local rank of the arguments is kept for calls without", "[unit][sdk]") {
  const std::map<std::string, std::string> before{{"RANK", "1"},
                                                  {"WORLD_SIZE", "2"},
                                                  {"LOCAL_WORLD_SIZE", "2"},
                                                  {"MASTER_ADDR", "h"},
                                                  {"MASTER_PORT", "1"}};
  for (const auto& [name, value] : before)
    ::setenv(name.c_str(), value.c_str(), 1);
  const std::array<const char*, 2> arguments{"program", "--local-rank=1"};
  CHECK(read_environment(2, arguments.data()).local_rank == 1);
  CHECK(read_environment().local_rank == 1);
  CHECK_THROWS_AS(read_environment(1, arguments.data()), Error);
  for (const auto& [name, value] : before)
    ::unsetenv(name.c_str());
  CHECK(read_environment(1, arguments.data()) == Environment{});
  CHECK(read_environment() == Environment{});
}

TEST_CASE("environment: a world of one needs neither local rank nor address", "[unit][sdk]") {
  const Environment environment = read({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  CHECK(environment.launched_by == LaunchedBy::Launcher);
  CHECK(environment.local_world_size == 1);
  CHECK(environment.master_port == 0);
}

TEST_CASE("environment: --local-rank of the old launcher", "[unit][sdk]") {
  const Variables variables = without(launched(), "LOCAL_RANK");
  CHECK(read(variables, {"--local-rank=1"}).local_rank == 1);
  CHECK(read(variables, {"x", "--local_rank=1"}).local_rank == 1);
  CHECK(read(variables, {"--local-rank", "1"}).local_rank == 1);
  CHECK(read(launched(), {"--local-rank=0"}).local_rank == 0);
  // The name of another option may begin in the same way.
  CHECK(read(launched(), {"--local-ranks=7"}).local_rank == 0);
  CHECK(error_of(launched(), {"--local-rank=1"}).starts_with("LOCAL_RANK=\"0\" but"));
  CHECK(error_of(variables, {"--local-rank=x"}).starts_with("--local-rank=x: expected"));
  CHECK(error_of(variables, {"--local-rank=4"}).starts_with("--local-rank=4: expected"));
  CHECK(error_of({}, {"--local-rank=0"}).starts_with("RANK is not set"));
}

TEST_CASE("environment: a task of srun", "[unit][sdk]") {
  const Variables variables{{"SLURM_PROCID", "9"},
                            {"SLURM_STEP_NUM_TASKS", "11"},
                            {"SLURM_LOCALID", "1"},
                            {"SLURM_NODEID", "2"},
                            {"SLURM_STEP_NUM_NODES", "3"},
                            {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
                            {"SLURM_STEP_NODELIST", "gpu[008-010]"},
                            {"SLURM_JOB_ID", "40001"}};
  const Environment environment = read(variables);
  CHECK(environment.launched_by == LaunchedBy::Slurm);
  CHECK(environment.rank == 9);
  CHECK(environment.world_size == 11);
  CHECK(environment.local_rank == 1);
  CHECK(environment.local_world_size == 3);
  CHECK(environment.group_rank == 2);
  CHECK(environment.group_world_size == 3);
  CHECK(environment.master_addr == "gpu008");
  CHECK(environment.master_port == 12001);
  CHECK(environment.run_id == "40001");
  CHECK(read(changed(variables, "MASTER_ADDR", "other")).master_addr == "other");
  CHECK(read(changed(variables, "MASTER_PORT", "7")).master_port == 7);
  // The batch script itself is one process.
  CHECK(read(without(variables, "SLURM_STEP_NUM_TASKS")) == Environment{});
  CHECK(error_of(without(variables, "SLURM_LOCALID")).starts_with("SLURM_LOCALID is not set"));
  CHECK(error_of(changed(variables, "SLURM_PROCID", "11")).find("srun") != std::string::npos);
  CHECK(error_of(changed(variables, "SLURM_STEP_TASKS_PER_NODE", "4(x2)"))
            .starts_with("SLURM_STEP_TASKS_PER_NODE=\"4(x2)\""));
  CHECK(error_of(changed(variables, "SLURM_STEP_NODELIST", "gpu["))
            .starts_with("MASTER_ADDR is not set"));
  // The variables of a launcher that srun started have priority.
  Variables both = launched();
  both.insert(variables.begin(), variables.end());
  CHECK(read(both).launched_by == LaunchedBy::Launcher);
}

TEST_CASE("environment: Slurm's lists", "[unit][sdk]") {
  CHECK(first_host("node1") == "node1");
  CHECK(first_host("node1,node2") == "node1");
  CHECK(first_host("node[007-9,12],gpu1") == "node007");
  CHECK(first_host("node[3]-ib,x") == "node3-ib");
  CHECK(first_host("r[1-2]n[1-4]").empty());
  CHECK(first_host("node[").empty());
  CHECK(first_host("node[1").empty());
  CHECK(first_host("").empty());
  CHECK(tasks_on_node("4(x2),3", 0) == 4);
  CHECK(tasks_on_node("4(x2),3", 1) == 4);
  CHECK(tasks_on_node("4(x2),3", 2) == 3);
  CHECK_FALSE(tasks_on_node("4(x2),3", 3));
  for (const char* wrong : {"", "x", "4(x", "4(x)", "4(x0)", "0", ",4", "4(x2"})
    CHECK_FALSE(tasks_on_node(wrong, 0));
}

TEST_CASE("environment: a process of mpirun", "[unit][sdk]") {
  const Variables variables{{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  const Environment environment = read(variables);
  CHECK(environment.launched_by == LaunchedBy::OpenMpi);
  CHECK(environment.rank == 1);
  CHECK(environment.local_rank == 1);
  CHECK(environment.master_addr == "127.0.0.1");
  CHECK(environment.master_port == 29500);
  // With two nodes, only the user knows where rank 0 is.
  const Variables wide = changed(changed(variables, "OMPI_COMM_WORLD_LOCAL_SIZE", "1"),
                                 "OMPI_COMM_WORLD_LOCAL_RANK", "0");
  CHECK(error_of(wide).starts_with("MASTER_ADDR is not set"));
  CHECK(read(changed(wide, "MASTER_ADDR", "node0")).group_rank == 1);
  CHECK(error_of(without(variables, "OMPI_COMM_WORLD_SIZE"))
            .starts_with("OMPI_COMM_WORLD_SIZE is not set"));
}

}  // namespace muster
