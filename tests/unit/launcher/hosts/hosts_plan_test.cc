// What each host gets to do.

#include "launcher/hosts/hosts_plan.h"

#include <algorithm>
#include <string>
#include <vector>

#include "tests/unit/launcher/plan_fixture.h"

namespace muster::testing {
namespace {

using Catch::Contains;
using Words = std::vector<std::string>;

struct HostsPlanTest : PlanFixture {
  std::string program = "/opt/muster/bin/muster";

  Checked<HostsPlan> plan_of(const Words& words) const {
    const Flags given = flags(words);
    REQUIRE(names_hosts(given));
    const NodeFacts facts{
        .new_run_id = [] { return std::string("new-id"); },
        .argv0 = argv0,
        .read_file = [this](const std::string& path) -> std::optional<std::string> {
          const auto found = texts.find(path);
          if (found == texts.end()) return std::nullopt;
          return found->second;
        }};
    return plan_hosts({.flags = given,
                       .words = words,
                       .environment = environment,
                       .facts = facts,
                       .folder = "/data/me",
                       .program = program});
  }
  HostsPlan good_plan(const Words& words) const {
    auto plan = plan_of(words);
    if (!plan) FAIL(plan.error().message);
    return *std::move(plan);
  }
  std::string error_of(const Words& words) const {
    const auto plan = plan_of(words);
    REQUIRE(plan.has_error());
    return plan.error().message;
  }
};

TEST_CASE_METHOD(HostsPlanTest, "hosts plan: each host gets its part", "[unit][launcher]") {
  const HostsPlan plan =
      good_plan({"--hosts", "a:8,me@b:4", "--max-restarts=3", "train.py", "--hosts", "x y"});
  REQUIRE(plan.jobs.size() == 2);
  CHECK(plan.min_nodes == 2);
  CHECK(plan.run_id == "new-id");
  CHECK_THAT(plan.endpoint, Catch::StartsWith("a:2"));
  CHECK(plan.jobs[1].arguments == Words{"muster", "--nnodes=2", "--rdzv-id=new-id",
                                        "--rdzv-backend=c10d", "--rdzv-endpoint=" + plan.endpoint,
                                        "--node-rank=1", "--nproc-per-node=4", "--max-restarts=3",
                                        "train.py", "--hosts", "x y"});
  CHECK(plan.jobs[0].folder == "/data/me");
}

TEST_CASE_METHOD(HostsPlanTest, "hosts plan: what is given is kept", "[unit][launcher]") {
  const HostsPlan plan =
      good_plan({"--hosts=a:8,b:8,[fd00::1]:8", "--nnodes=2:3", "--rdzv-endpoint=m:29400",
                 "--rdzv-id=seven", "--nproc-per-node=4", "t.py"});
  CHECK(plan.min_nodes == 2);
  CHECK(plan.endpoint == "m:29400");
  CHECK(plan.jobs[2].arguments == Words{"muster", "--rdzv-backend=c10d", "--node-rank=2",
                                        "--nnodes=2:3", "--rdzv-endpoint=m:29400",
                                        "--rdzv-id=seven", "--nproc-per-node=4", "t.py"});
  environment["PET_RDZV_ENDPOINT"] = "other:1";
  const HostsPlan by_variable = good_plan({"--hosts=a,b", "t.py"});
  CHECK(by_variable.endpoint == "other:1");
  CHECK(by_variable.jobs[0].environment.at("PET_RDZV_ENDPOINT") == "other:1");
}

TEST_CASE_METHOD(HostsPlanTest, "hosts plan: an address of IPv6 is an endpoint in brackets",
                 "[unit][launcher]") {
  CHECK_THAT(good_plan({"--hosts=fd00::1,b", "t.py"}).endpoint, Catch::StartsWith("[fd00::1]:2"));
}

TEST_CASE_METHOD(HostsPlanTest, "hosts plan: variables", "[unit][launcher]") {
  environment["PET_MAX_RESTARTS"] = "2";
  environment["MUSTER_OMP"] = "auto";
  environment["MUSTER_EXPORT"] = "WANDB_MODE,COLOUR=light,,dark";
  environment["WANDB_MODE"] = "offline";
  environment["SECRET"] = "x";
  environment["VIRTUAL_ENV"] = "/venv";
  const auto plan = good_plan({"--hosts=a,b", "t.py"});
  CHECK(plan.jobs[0].environment == std::map<std::string, std::string>{{"COLOUR", "light,dark"},
                                                                       {"MUSTER_OMP", "auto"},
                                                                       {"PET_MAX_RESTARTS", "2"},
                                                                       {"VIRTUAL_ENV", "/venv"},
                                                                       {"WANDB_MODE", "offline"}});
  CHECK_THAT(error_of({"--hosts=a", "--export=NO", "t.py"}), Contains("NO is not set here"));
  CHECK_THAT(error_of({"--hosts=a", "--export=A B=1", "t.py"}), Contains("no name of a variable"));
}

TEST_CASE_METHOD(HostsPlanTest, "hosts plan: a hostfile", "[unit][launcher]") {
  texts["hosts.txt"] = "a slots=2\nb slots=4\n";
  CHECK(good_plan({"--hostfile=hosts.txt", "t.py"}).hosts.size() == 2);
  CHECK_THAT(error_of({"--hostfile=no.txt", "t.py"}), Contains("cannot read 'no.txt'"));
  CHECK_THAT(error_of({"--hosts=a", "--hostfile=hosts.txt", "t.py"}),
             Contains("both name the hosts"));
  texts["long.txt"] = std::string((1 << 20) + 1, '#');
  CHECK_THAT(error_of({"--hostfile=long.txt", "t.py"}), Contains("larger than 1 MiB"));
}

TEST_CASE_METHOD(HostsPlanTest, "hosts plan: mistakes are named once, here", "[unit][launcher]") {
  CHECK_THAT(error_of({"--hosts=a,b", "--node-rank=1", "t.py"}),
             Contains("--node-rank has no place"));
  CHECK_THAT(error_of({"--hosts=a,b", "--standalone", "t.py"}),
             Contains("--standalone has no place"));
  CHECK_THAT(error_of({"--hosts=a,b", "--cluster", "t.py"}), Contains("--cluster has no place"));
  CHECK_THAT(error_of({"--hosts=a,b", "--rdzv-backend=static", "t.py"}), Contains("meet by c10d"));
  CHECK_THAT(error_of({"--hosts=a,b", "--nnodes=3", "t.py"}), Contains("2 hosts are named"));
  CHECK_THAT(error_of({"--hosts=a:2,b:8", "--nproc-per-node=4", "t.py"}), Contains("but a has 2"));
  CHECK_THAT(error_of({"--hosts=a,b", "--tee=9", "t.py"}), Contains("--tee"));
  CHECK_THAT(error_of({"--hosts=a,b", "--rdzv-conf=jon_timeout=1", "t.py"}),
             Contains("jon_timeout"));
  // Only a host knows its GPUs and files.
  CHECK(good_plan({"--hosts=a,b", "--nproc-per-node=gpu", "nowhere/t.py"}).jobs.size() == 2);
}

TEST_CASE_METHOD(HostsPlanTest, "hosts plan: ssh's command has no text of the user",
                 "[unit][launcher]") {
  const Words words = {"--hosts=a", "--export=X='; reboot", "it's; $(x).py", "`y`"};
  const HostsPlan plan = good_plan(words);
  const std::vector<std::string> ssh = ssh_arguments(plan, plan.hosts.front());
  CHECK(ssh.back() ==
        "sh -c 'test -x /opt/muster/bin/muster && exec /opt/muster/bin/muster --node-of-hosts; "
        "exec muster --node-of-hosts'");
  CHECK(ssh[ssh.size() - 2] == "a");
  CHECK(ssh[ssh.size() - 3] == "--");
  program = "/opt/my muster/bin/muster";
  CHECK(good_plan(words).ssh_command == "sh -c 'exec muster --node-of-hosts'");
}

}  // namespace
}  // namespace muster::testing
