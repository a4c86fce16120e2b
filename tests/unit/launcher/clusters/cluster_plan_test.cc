// --cluster, with the variables that each scheduler sets, and warnings where it is not given.

#include <algorithm>
#include <string>
#include <vector>

#include "launcher/clusters/cluster.h"
#include "tests/unit/launcher/plan_fixture.h"

namespace muster::testing {
namespace {

using Catch::Contains;
using Words = std::vector<std::string>;

struct ClusterTest : PlanFixture {
  void set(const Environment& variables) {
    for (const auto& [name, value] : variables)
      environment[name] = value;
  }
  // As on the second of two nodes of `srun --ntasks-per-node=1`, Slurm 22.05.
  void set_slurm() {
    set({{"SLURM_JOB_ID", "200505"},
         {"SLURM_JOB_NUM_NODES", "4"},
         {"SLURM_JOB_NODELIST", "gnode[08-11]"},
         {"SLURM_STEP_ID", "0"},
         {"SLURM_STEP_NUM_NODES", "2"},
         {"SLURM_STEP_NUM_TASKS", "2"},
         {"SLURM_STEP_NODELIST", "gnode[09,11]"},
         {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
         {"SLURM_NNODES", "2"},
         {"SLURM_NODEID", "1"},
         {"SLURM_PROCID", "1"},
         {"SLURM_LOCALID", "0"},
         {"SLURM_GPUS_ON_NODE", "8"}});
  }
  // Of Open MPI 4.1.4: mpirun --host a,b, on the first host.
  void set_open_mpi() {
    set({{"OMPI_COMM_WORLD_SIZE", "2"},
         {"OMPI_COMM_WORLD_RANK", "0"},
         {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
         {"OMPI_MCA_orte_hnp_uri",
          "1561460736.0;tcp://10.0.0.1,10.1.0.1:56189;tcp6://[fd00::2]:38"},
         {"OMPI_MCA_orte_local_daemon_uri",
          "1561460736.0;tcp://10.0.0.1,10.1.0.1:56189;tcp6://[fd00::2]:38"},
         {"PMIX_NAMESPACE", "1561460737"}});
  }
  // Of the documentation of Spectrum LSF 10.1.
  void set_lsf() {
    set({{"LSB_JOBID", "5063"},
         {"LSB_JOBINDEX", "0"},
         {"LSB_MCPU_HOSTS", "hostA 4 hostB 4 hostC 4 "}});
    host_name = "hostB.example.org";
  }
  void set_pbs() {
    set({{"PBS_JOBID", "1234.pbs-server"}, {"PBS_NODEFILE", "/var/spool/pbs/aux/1234.pbs-server"}});
    texts["/var/spool/pbs/aux/1234.pbs-server"] = "r1i0n1.ib0\nr1i0n1.ib0\nr1i0n2.ib0\n";
    host_name = "r1i0n2";
  }
  // Of sagemaker-training-toolkit's ENVIRONMENT_VARIABLES.md.
  void set_sagemaker() {
    set({{"SM_HOSTS", R"(["algo-1","algo-2"])"},
         {"SM_CURRENT_HOST", "algo-2"},
         {"SM_NUM_GPUS", "4"},
         {"TRAINING_JOB_NAME", "bert-2026"}});
  }
  // Of kubernetes.io, "Job with Pod-to-Pod Communication".
  void set_kubernetes() {
    set({{"JOB_COMPLETION_INDEX", "12"}, {"KUBERNETES_SERVICE_HOST", "10.96.0.1"}});
    host_name = "my-train-12";
    texts["/etc/hosts"] =
        "127.0.0.1\tlocalhost\n10.1.0.7\tmy-train-12.net.team.svc.cluster.local\tmy-train-12\n";
  }
  LaunchPlan filled(Words words = {}) const {
    words.insert(words.begin(), "--cluster");
    words.emplace_back("train.py");
    return good(words);
  }
  std::string refused(Words words = {}) const {
    words.insert(words.begin(), "--cluster");
    words.emplace_back("train.py");
    return error(words);
  }
  void check(const LaunchPlan& plan, int nodes, int rank, const std::string& endpoint,
             const std::string& run_id) const {
    const RendezvousOptions& rendezvous = plan.agent.rendezvous;
    CHECK(plan.agent.min_nodes == nodes);
    CHECK(plan.agent.max_nodes == nodes);
    CHECK(rendezvous.preferred_rank == rank);
    CHECK(rendezvous.backend == RendezvousBackend::C10d);
    CHECK(rendezvous.endpoint == endpoint);
    CHECK(plan.agent.run_id == run_id);
    CHECK(plan.warnings.empty());
  }
};

TEST_CASE_METHOD(ClusterTest, "cluster: Slurm's step", "[unit][launcher]") {
  set_slurm();
  const LaunchPlan plan = filled();
  check(plan, 2, 1, "gnode09:22505", "slurm-200505.0");
  CHECK(plan.agent.local_world_size == 8);
  CHECK(plan.cluster ==
        Words{"--nnodes=2  (SLURM_STEP_NUM_NODES)", "--nproc-per-node=8  (SLURM_GPUS_ON_NODE)",
              "--rdzv-id=slurm-200505.0  (the job's id)", "--node-rank=1  (SLURM_NODEID)",
              "--rdzv-backend=c10d  (for several nodes)",
              "--rdzv-endpoint=gnode09:22505  (the first host of SLURM_STEP_NODELIST, port from "
              "the job's id)"});
  // The next step of the job, and a job that was requeued, are other runs.
  set({{"SLURM_STEP_ID", "3"}, {"SLURM_RESTART_COUNT", "1"}});
  check(filled(), 2, 1, "gnode09:22808", "slurm-200505.3-1");
  environment.erase("SLURM_GPUS_ON_NODE");
  CHECK(filled().agent.local_world_size == 1);
  gpus = 4;
  CHECK(filled().agent.local_world_size == 4);
}

TEST_CASE_METHOD(ClusterTest, "cluster: what the user gives wins", "[unit][launcher]") {
  set_slurm();
  const LaunchPlan plan = filled({"--nnodes=1:2", "--nproc-per-node=3", "--rdzv-id=mine",
                                  "--rdzv-endpoint=musterd:29400", "--node-rank=0"});
  CHECK(plan.agent.min_nodes == 1);
  CHECK(plan.agent.local_world_size == 3);
  CHECK(plan.agent.run_id == "mine");
  CHECK(plan.agent.rendezvous.endpoint == "musterd:29400");
  CHECK(plan.agent.rendezvous.preferred_rank == 0);
  CHECK(plan.cluster == Words{"--rdzv-backend=c10d  (for several nodes)"});
  environment["PET_NNODES"] = "3";
  CHECK(filled().agent.max_nodes == 3);
  environment.erase("PET_NNODES");
  // A variable that is not needed may be missing.
  environment.erase("SLURM_NODEID");
  CHECK(filled({"--node-rank=1"}).agent.max_nodes == 2);
  set_slurm();
  const LaunchPlan fixed = filled({"--rdzv-backend=static"});
  CHECK(fixed.agent.rendezvous.backend == RendezvousBackend::Static);
  CHECK(fixed.agent.rendezvous.node_rank == 1);
  CHECK(fixed.agent.rendezvous.endpoint == "gnode09:22505");
  CHECK(filled({"--master-addr=h"}).agent.rendezvous.endpoint == "h:29500");
  CHECK_THAT(refused({"--standalone"}), Contains("--standalone means this node alone"));
}

TEST_CASE_METHOD(ClusterTest, "cluster: one node needs no endpoint", "[unit][launcher]") {
  set_slurm();
  set({{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_TASKS_PER_NODE", "1"}});
  const LaunchPlan plan = filled();
  CHECK(plan.agent.rendezvous.standalone);
  CHECK(plan.agent.run_id == "slurm-200505.0");
  CHECK(plan.agent.local_world_size == 8);
  CHECK(plan.warnings.empty());
}

TEST_CASE_METHOD(ClusterTest, "cluster: a missing or bad variable of Slurm is named",
                 "[unit][launcher]") {
  const auto refused_with = [this](const char* name, const char* value) {
    environment.clear();
    set_slurm();
    environment[name] = value;
    return refused();
  };
  CHECK_THAT(refused_with("SLURM_NODEID", ""),
             Contains("--cluster (Slurm): SLURM_NODEID is not set"));
  CHECK_THAT(refused_with("SLURM_NODEID", "one"), Contains("SLURM_NODEID is 'one': it must be"));
  CHECK_THAT(refused_with("SLURM_STEP_NUM_NODES", "0"),
             Contains("SLURM_STEP_NUM_NODES is '0': it must be a number from 1"));
  CHECK_THAT(refused_with("SLURM_GPUS_ON_NODE", "-1"), Contains("SLURM_GPUS_ON_NODE is '-1'"));
  CHECK_THAT(refused_with("SLURM_STEP_NODELIST", "gnode[1-"),
             Contains("SLURM_STEP_NODELIST is 'gnode[1-'"));
  CHECK_THAT(refused_with("SLURM_STEP_TASKS_PER_NODE", "8(x2)"),
             Contains("SLURM_STEP_TASKS_PER_NODE is '8(x2)'") && Contains("--ntasks-per-node=1"));
  CHECK_THAT(refused_with("SLURM_STEP_ID", ""),
             Contains("SLURM_STEP_ID is not set") && Contains("without srun"));
}

TEST_CASE_METHOD(ClusterTest, "cluster: Open MPI", "[unit][launcher]") {
  set_open_mpi();
  check(filled(), 2, 0, "10.0.0.1:25737", "mpi-1561460737");
  // Within a job of Slurm, its list of hosts counts.
  set({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "n[1-2]"}});
  check(filled(), 2, 0, "n1:25737", "mpi-1561460737");
  environment.erase("SLURM_JOB_NODELIST");
  environment["OMPI_MCA_orte_local_daemon_uri"] = "1561460736.1;tcp://10.0.0.2:1";
  CHECK_THAT(refused(), Contains("mpirun runs on another host than rank 0"));
  environment["OMPI_COMM_WORLD_RANK"] = "1";
  check(filled(), 2, 1, "10.0.0.1:25737", "mpi-1561460737");
  environment["OMPI_COMM_WORLD_LOCAL_SIZE"] = "4";
  CHECK_THAT(refused(), Contains("OMPI_COMM_WORLD_LOCAL_SIZE is 4") && Contains("ppr:1:node"));
}

TEST_CASE_METHOD(ClusterTest, "cluster: Intel MPI and MPICH name no host", "[unit][launcher]") {
  set({{"PMI_SIZE", "3"}, {"PMI_RANK", "2"}, {"MPI_LOCALNRANKS", "1"}, {"MPI_LOCALRANKID", "0"}});
  CHECK_THAT(refused(), Contains("(MPI): mpirun does not say which host has rank 0") &&
                            Contains("--rdzv-endpoint=HOST:PORT"));
  check(filled({"--rdzv-endpoint=h:29400"}), 3, 2, "h:29400", "mpi");
}

TEST_CASE_METHOD(ClusterTest, "cluster: LSF", "[unit][launcher]") {
  set_lsf();
  check(filled(), 3, 1, "hostA:25063", "lsf-5063");
  environment["LSB_JOBINDEX"] = "2";
  CHECK(filled().agent.run_id == "lsf-5063-2");
  host_name = "elsewhere";
  CHECK_THAT(refused(),
             Contains("LSB_MCPU_HOSTS has no host 'elsewhere'") && Contains("--node-rank"));
  // jsrun counts its tasks, and none of them is on the host of the batch script.
  set({{"JSM_NAMESPACE_RANK", "0"}, {"JSM_NAMESPACE_SIZE", "2"}});
  CHECK(filled().agent.rendezvous.endpoint == "hostB:25063");
  for (const char* list : {"hostA hostB 4", "hostA 4 hostB", " "}) {
    environment["LSB_MCPU_HOSTS"] = list;
    CHECK_THAT(refused(), Contains("LSB_MCPU_HOSTS is '"));
  }
  environment.erase("LSB_MCPU_HOSTS");
  CHECK_THAT(refused(), Contains("LSB_MCPU_HOSTS is not set"));
}

TEST_CASE_METHOD(ClusterTest, "cluster: PBS", "[unit][launcher]") {
  set_pbs();
  check(filled(), 2, 1, "r1i0n1.ib0:21234", "pbs-1234");
  environment["PBS_JOBID"] = "1234[5].pbs-server";
  CHECK(filled().agent.run_id == "pbs-1234-5");
  texts.clear();
  CHECK_THAT(refused(), Contains("PBS_NODEFILE is '/var/spool/pbs/aux/1234.pbs-server', which "
                                 "cannot be read here"));
  texts["/var/spool/pbs/aux/1234.pbs-server"] = "\n";
  CHECK_THAT(refused(), Contains("names no host"));
  environment.erase("PBS_NODEFILE");
  CHECK_THAT(refused(), Contains("PBS_NODEFILE is not set"));
}

TEST_CASE_METHOD(ClusterTest, "cluster: SageMaker", "[unit][launcher]") {
  set_sagemaker();
  check(filled(), 2, 1, "algo-1:29400", "sagemaker-bert-2026");
  CHECK(filled().agent.local_world_size == 4);
  environment["SM_NUM_GPUS"] = "0";
  CHECK(filled().agent.local_world_size == 1);
  for (const char* wrong : {"algo-1", "[]", "[1]", "{}", "[\"a\""}) {
    environment["SM_HOSTS"] = wrong;
    CHECK_THAT(refused(), Contains(std::string("SM_HOSTS is '") + wrong + "'"));
  }
  // A container without SageMaker's toolkit has only its file.
  environment.erase("SM_HOSTS");
  environment.erase("SM_CURRENT_HOST");
  host_name = "algo-2";
  texts["/opt/ml/input/config/resourceconfig.json"] =
      R"({"current_host":"algo-2","hosts":["algo-1","algo-2"],"network_interface_name":"eth0"})";
  const LaunchPlan plan = good({"--cluster=sagemaker", "train.py"});
  check(plan, 2, 1, "algo-1:29400", "sagemaker-bert-2026");
  texts.clear();
  CHECK_THAT(error({"--cluster=sagemaker", "train.py"}), Contains("SM_HOSTS is not set"));
}

TEST_CASE_METHOD(ClusterTest, "cluster: Kubernetes' indexed Job", "[unit][launcher]") {
  set_kubernetes();
  CHECK_THAT(refused(), Contains("(Kubernetes): --nnodes is not given") && Contains("PET_NNODES"));
  check(filled({"--nnodes=16"}), 16, 12, "my-train-0.net.team.svc.cluster.local:29400",
        "kubernetes-my-train");
  texts["/etc/hosts"] = "10.1.0.7\tmy-train-12\n";
  CHECK_THAT(refused({"--nnodes=16"}), Contains("subdomain"));
  host_name = "other";
  CHECK_THAT(refused({"--nnodes=16"}), Contains("this host is called 'other'"));
  environment["JOB_COMPLETION_INDEX"] = "x";
  CHECK_THAT(refused({"--nnodes=16"}), Contains("JOB_COMPLETION_INDEX is 'x'"));
}

TEST_CASE_METHOD(ClusterTest, "cluster: the scheduler is named or found", "[unit][launcher]") {
  CHECK_THAT(refused(), Contains("--cluster: no variable of a scheduler is set"));
  CHECK_THAT(error({"--cluster=slurm", "x"}), Contains("(Slurm): "));
  CHECK_THAT(usage_error({"--cluster=slrum", "x"}), Contains("invalid choice: 'slrum'"));
  environment["MUSTER_CLUSTER"] = "auto";
  CHECK_THAT(error({"x"}), Contains("MUSTER_CLUSTER: no variable"));
  // The word behind the option is the script.
  CHECK(flags({"--cluster", "slurm"}).script == "slurm");
  CHECK(*flags({"--cluster=lsf", "x"}).cluster == "lsf");
  for (const char* name : {"slurm", "kubernetes", "pbs", "lsf", "mpi", "sagemaker"})
    CHECK(cluster_from(name).has_value());
  CHECK_FALSE(cluster_from("auto").has_value());
}

TEST_CASE("cluster: ports leave out those of musterd and torchrun", "[unit][launcher]") {
  CHECK(kClusterPortBegin + kClusterPorts <= 29400);
  CHECK(kClusterPortBegin + kClusterPorts <= 29500);
}

TEST_CASE_METHOD(ClusterTest, "cluster: several nodes without --cluster are named",
                 "[unit][launcher]") {
  const auto only_warning = [this](const Words& words) {
    const Words found = warnings(words);
    REQUIRE(found.size() == 1);
    return found[0];
  };
  const auto check_warned = [&](const std::string& sign, const std::string& command) {
    for (const Words& words : {Words{"train.py"}, Words{"--standalone", "train.py"}}) {
      const std::string warning = only_warning(words);
      CHECK_THAT(warning,
                 Catch::StartsWith(sign + ", but the options describe a job of this node"));
      CHECK_THAT(warning, Contains(command + " train.py; for a job of this node: --nnodes=1"));
      CHECK_THAT(error({"--strict", "train.py"}), Contains(sign));
    }
    CHECK(warnings({"--nnodes=1", "train.py"}).empty());
    CHECK(warnings({"--nnodes=1", "--standalone", "train.py"}).empty());
  };
  CHECK(warnings({"train.py"}).empty());
  const auto clean = environment;
  const std::string mpirun = "mpirun --map-by ppr:1:node muster --cluster";
  set_slurm();
  check_warned("SLURM_STEP_NUM_NODES is 2", "srun --ntasks-per-node=1 muster --cluster");
  CHECK_THAT(only_warning({"-m", "pkg.train"}), Contains("muster --cluster -m pkg.train"));
  set({{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_NUM_TASKS", "8"}});
  check_warned("SLURM_STEP_NUM_TASKS is 8", "srun --ntasks-per-node=1 muster --cluster");
  environment["SLURM_STEP_NUM_TASKS"] = "1";
  CHECK(warnings({"train.py"}).empty());
  environment = clean;
  set({{"SLURM_JOB_ID", "1"}, {"SLURM_NNODES", "2"}});
  check_warned("SLURM_NNODES is 2", "srun --ntasks-per-node=1 muster --cluster");
  environment = clean;
  set_open_mpi();
  check_warned("OMPI_COMM_WORLD_SIZE is 2", mpirun);
  environment = clean;
  set({{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}, {"MPI_LOCALNRANKS", "1"}});
  check_warned("PMI_SIZE is 2", mpirun);
  environment = clean;
  set_lsf();
  check_warned("the hosts of LSB_MCPU_HOSTS are 3", "muster --cluster");
  environment = clean;
  set_pbs();
  check_warned("the hosts of PBS_NODEFILE are 2", mpirun);
  environment = clean;
  set_sagemaker();
  check_warned("the hosts of SM_HOSTS are 2", "muster --cluster");
  environment = clean;
  set_kubernetes();
  check_warned("JOB_COMPLETION_INDEX is 12", "muster --cluster --nnodes=COMPLETIONS");
}

TEST_CASE_METHOD(ClusterTest, "cluster: a PET_ variable of Kubeflow's that is missing is named",
                 "[unit][launcher]") {
  const Environment all{{"PET_NNODES", "2"},
                        {"PET_NODE_RANK", "1"},
                        {"PET_MASTER_ADDR", "pytorch-0"},
                        {"PET_MASTER_PORT", "23456"}};
  const auto warned_without = [&](const char* missing) {
    environment.clear();
    environment["PATH"] = "/usr/bin";
    set(all);
    environment.erase(missing);
    return warnings({"train.py"});
  };
  CHECK(warned_without("").empty());
  CHECK_THAT(warned_without("PET_NODE_RANK").at(0), Contains("PET_NODE_RANK is not set"));
  CHECK_THAT(warned_without("PET_MASTER_ADDR").at(0),
             Contains("PET_NNODES is 2, but PET_MASTER_ADDR is not set"));
  environment.erase("PET_NNODES");
  environment["PET_MASTER_ADDR"] = "pytorch-0";
  CHECK_THAT(error({"train.py"}),
             Contains("PET_NODE_RANK is 1: with 1 node it is 0; PET_NNODES is not set"));
  environment["PET_NODE_RANK"] = "0";
  CHECK_THAT(warnings({"train.py"}).at(0), Contains("PET_NODE_RANK is set, but PET_NNODES is not"));
  environment = {{"PATH", "/usr/bin"}};
  CHECK_THAT(warnings({"--nnodes=2", "x"}).at(0),
             Contains("--nnodes is 2, but no --master-addr is given"));
  CHECK(warnings({"--nnodes=2", "--master-addr=h", "x"}).empty());
}

}  // namespace
}  // namespace muster::testing
