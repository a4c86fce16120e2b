// --numa-binding, --run-path, --event-log-handler and the script itself, on a simulated machine.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "launcher/python_command.h"
#include "launcher/script_check.h"
#include "tests/unit/launcher/plan_fixture.h"

namespace muster::testing {
namespace {

using Words = std::vector<std::string>;
using Catch::Matchers::Contains;

struct DevicesFixture : PlanFixture {
  NumaTopology topology{.nodes = {{0, {0, 1}}, {1, {2, 3}}},
                        .packages = {{0, {0, 1, 2, 3}}},
                        .cores = {{0}, {1}, {2}, {3}},
                        .caches = {},
                        .allowed = {0, 1, 2, 3}};
  std::vector<int> node_of_device;
  bool may_have_parts = false;
  std::string numa_error;
  std::set<std::string> scripts = {"x.py"};
  mutable std::vector<std::string> asked;  // CUDA_VISIBLE_DEVICES of each query; "unset": not set.

  Checked<LaunchPlan> plan_on_devices(const Words& words) const {
    NodeFacts facts{
        .cpus = [this] { return cpus; },
        .cpu_quota = [this] { return cpu_quota; },
        .gpus = [this] { return gpus; },
        .xpus = [this] { return xpus; },
        .new_run_id = [] { return std::string("new-id"); },
        .first_executable = first_of(programs),
        .first_existing = first_of(files),
        .argv0 = argv0,
    };
    facts.numa = [this](const Environment& variables) -> Checked<NumaFacts> {
      const auto devices = variables.find("CUDA_VISIBLE_DEVICES");
      asked.push_back(devices == variables.end() ? "unset" : devices->second);
      if (!numa_error.empty()) return FlagError{numa_error};
      return NumaFacts{topology, node_of_device, may_have_parts};
    };
    facts.script_problem = [this](const std::string& script) -> std::optional<std::string> {
      if (scripts.contains(script)) return std::nullopt;
      return "No such file or directory";
    };
    return plan_launch(flags(words), environment, facts);
  }
  LaunchPlan good_plan(const Words& words) const {
    auto result = plan_on_devices(words);
    if (!result) FAIL(result.error().message);
    return *std::move(result);
  }
  std::string plan_error(const Words& words) const {
    const auto result = plan_on_devices(words);
    REQUIRE_FALSE(result.has_value());
    return result.error().message;
  }
};

TEST_CASE_METHOD(DevicesFixture, "plan: workers are bound near their GPUs", "[unit][launcher]") {
  node_of_device = {1, 0};
  const Words words = {"--numa-binding=node", "--nproc-per-node=2", "x.py"};
  CHECK(good_plan(words).agent.cpus == CpusByLocalRank{{2, 3}, {0, 1}});
  CHECK(asked == Words{"unset"});
  environment["CUDA_VISIBLE_DEVICES"] = "5,6";
  good_plan(words);
  CHECK(asked.back() == "5,6");
  gpus = 2;
  good_plan({"--numa-binding=node", "--nproc-per-node=gpu:1,0", "x.py"});
  CHECK(asked.back() == "6,5");
  CHECK_THAT(plan_error({"--numa-binding=node", "--nproc-per-node=3", "x.py"}),
             Contains("--numa-binding node: there are 3 workers") && Contains("2 visible"));
  numa_error = "no hwloc";
  CHECK(plan_error(words) == "--numa-binding: no hwloc");
  asked.clear();
  CHECK(good_plan({"--nproc-per-node=2", "x.py"}).agent.cpus.empty());
  CHECK(asked.empty());  // A query costs time.
}

TEST_CASE_METHOD(DevicesFixture, "plan: several workers may share an XPU, each on a tile of it",
                 "[unit][launcher]") {
  node_of_device = {1, 0};
  may_have_parts = true;
  const auto cpus_of = [&](const char* workers) {
    return good_plan({"--numa-binding=node", "--nproc-per-node", workers, "x.py"}).agent.cpus;
  };
  CHECK(cpus_of("4") == CpusByLocalRank{{2, 3}, {2, 3}, {0, 1}, {0, 1}});
  CHECK(cpus_of("2") == CpusByLocalRank{{2, 3}, {0, 1}});
  CHECK(cpus_of("1") == CpusByLocalRank{{2, 3}});
  CHECK_THAT(plan_error({"--numa-binding=node", "--nproc-per-node=3", "x.py"}),
             Contains("there are 3 workers"));
}

TEST_CASE_METHOD(DevicesFixture, "plan: without GPUs workers are spread over the NUMA nodes",
                 "[unit][launcher]") {
  environment["OMP_NUM_THREADS"] = "1";
  const LaunchPlan plan = good_plan({"--numa-binding=exclusive", "--nproc-per-node=4", "x.py"});
  CHECK(plan.agent.cpus == CpusByLocalRank{{0}, {1}, {2}, {3}});
  REQUIRE(plan.notices.size() == 1);
  CHECK_THAT(plan.notices[0], Contains("no GPU is visible"));
}

TEST_CASE_METHOD(PlanFixture, "plan: more workers for CPUs than the cgroup's quota are named",
                 "[unit][launcher]") {
  environment["OMP_NUM_THREADS"] = "1";
  cpus = 6;
  cpu_quota = 1.5;
  for (const char* count : {"auto", "cpu"})
    CHECK(good({"--nproc-per-node", count, "x"}).notices ==
          Words{"--nproc-per-node is '" + std::string(count) +
                "': 6 workers share 1.5 CPUs, the quota of this process's cgroup; give a number of "
                "workers that fits"});
  CHECK(good({"--nproc-per-node=6", "x"}).notices.empty());
  cpu_quota = 6;
  CHECK(good({"--nproc-per-node=auto", "x"}).notices.empty());
  cpu_quota = std::nullopt;
  CHECK(good({"--nproc-per-node=auto", "x"}).notices.empty());
  gpus = 6;
  cpu_quota = 1.5;
  CHECK(good({"--nproc-per-node=auto", "x"}).notices.empty());
}

TEST_CASE_METHOD(PlanFixture, "plan: --omp auto shares out the cgroup's quota",
                 "[unit][launcher]") {
  const auto threads = [this] {
    return agent({"--omp=auto", "--nproc-per-node=2", "x"})
        .worker_environment.at("OMP_NUM_THREADS");
  };
  cpus = 9;
  CHECK(threads() == "4");
  cpu_quota = 7.5;
  CHECK(threads() == "3");
  cpu_quota = 0.5;
  CHECK(threads() == "1");
}

TEST_CASE_METHOD(DevicesFixture, "plan: --run-path runs the script in a fresh Python",
                 "[unit][launcher]") {
  const AgentOptions plan = good_plan({"--run-path", "x.py", "a", "b"}).agent;
  REQUIRE(plan.command.size() == 7);
  CHECK(plan.command[0] == "/usr/bin/python3");
  CHECK(plan.command[2] == "-c");
  CHECK_THAT(plan.command[3], Contains("runpy.run_path(sys.argv[0], run_name=\"__main__\")"));
  CHECK(plan.command[kRunPathScriptAt] == "x.py");
  CHECK(plan.command[6] == "b");
  CHECK(plan.first_argument == kRunPathScriptAt);  // Macros apply to the user's words only.
  CHECK(plan.entry_point == "run_script_path");
  // As in torchrun, --run-path overrides --no-python and -m.
  CHECK(good_plan({"--run-path", "--no-python", "-m", "x.py"}).agent.command[2] == "-c");
  argv0 = "muster-launch";
  CHECK(good_plan({"--run-path", "x.py"}).agent.local_rank_argument_at == 5);
  CHECK_FALSE(good_plan({"--run-path", "--use-env", "x.py"}).agent.local_rank_argument_at);
}

TEST_CASE_METHOD(DevicesFixture, "plan: a script that cannot be run is an error before the start",
                 "[unit][launcher]") {
  CHECK(plan_error({"y.py"}) == "cannot run the script 'y.py': No such file or directory");
  CHECK_THAT(plan_error({"--run-path", "y.py"}), Contains("'y.py'"));
  CHECK_THAT(plan_error({"train"}), Contains("for a module give -m"));
  scripts = {"0.py", "1.py"};
  good_plan({"--nproc-per-node=2", "${local_rank}.py"});
  CHECK_THAT(plan_error({"--nproc-per-node=3", "${local_rank}.py"}),
             Contains("'2.py' of local rank 2"));
  programs.insert("/bin/tool");
  for (const Words& words : {Words{"-m", "y"}, {"--no-python", "y"}, {"--", "-c", "pass"}, {"-"}})
    good_plan(words);
}

TEST_CASE("script check: files, folders and files without permission", "[unit][launcher]") {
  namespace fs = std::filesystem;
  const fs::path folder =
      fs::temp_directory_path() / ("muster_check_" + std::to_string(::getpid()));
  fs::create_directories(folder / "package");
  std::ofstream(folder / "x.py") << "pass\n";
  CHECK_FALSE(script_problem(folder / "x.py"));
  CHECK(script_problem(folder / "y.py") == "No such file or directory");
  CHECK(script_problem(folder / "x.py" / "y") == "Not a directory");
  CHECK(script_problem(folder / "package") == "it is a directory without __main__.py");
  std::ofstream(folder / "package" / "__main__.py") << "pass\n";
  CHECK_FALSE(script_problem(folder / "package"));
  CHECK_FALSE(script_problem("/dev/null"));
  fs::permissions(folder / "x.py", fs::perms::none);
  if (::geteuid() != 0) CHECK(script_problem(folder / "x.py") == "Permission denied");
  fs::remove_all(folder);
}

TEST_CASE_METHOD(DevicesFixture, "plan: variables of watchdogs without effect are warned of",
                 "[unit][launcher]") {
  environment["TORCHELASTIC_ENABLE_FILE_TIMER"] = "0";
  environment["TORCHELASTIC_TIMER_FILE"] = "/tmp/t";
  environment["TORCHELASTIC_HEALTH_CHECK_PORT"] = "";
  CHECK(good_plan({"x.py"}).warnings.empty());
  environment["TORCHELASTIC_ENABLE_FILE_TIMER"] = "1";
  environment["TORCHELASTIC_HEALTH_CHECK_PORT"] = "8080";
  environment["TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT"] = "5";
  auto lines = good_plan({"x.py"}).warnings;
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines[0], Contains("TORCHELASTIC_HEALTH_CHECK_PORT"));
  environment["TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT"] = "soon";
  lines = good_plan({"x.py"}).warnings;
  REQUIRE(lines.size() == 2);
  CHECK_THAT(lines[1], Contains("UNINTERRUPTIBLE_STATE_TIMEOUT is 'soon': nothing is watched"));
}

TEST_CASE_METHOD(DevicesFixture, "plan: --event-log-handler", "[unit][launcher]") {
  CHECK_FALSE(good_plan({"x.py"}).agent.events_on_console);
  CHECK_FALSE(
      good_plan({"--event-log-handler=dynamic_rendezvous", "x.py"}).agent.events_on_console);
  CHECK(good_plan({"--event-log-handler=console", "x.py"}).agent.events_on_console);
  CHECK_THAT(plan_error({"--event-log-handler=scuba", "x.py"}),
             Contains("'scuba'") && Contains("console, null and dynamic_rendezvous"));
  environment["LOGLEVEL"] = "warning";
  CHECK_FALSE(good_plan({"--event-log-handler=console", "x.py"}).agent.events_on_console);
}

}  // namespace
}  // namespace muster::testing
