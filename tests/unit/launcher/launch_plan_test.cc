#include "launcher/launch_plan.h"

#include <signal.h>

#include "launcher/rendezvous_flags.h"
#include "rendezvous/access/tls_allow.h"
#include "tests/unit/launcher/plan_fixture.h"

namespace muster::testing {
namespace {

using Words = std::vector<std::string>;
using Catch::Matchers::Contains;
using namespace std::chrono_literals;

TEST_CASE_METHOD(PlanFixture, "plan: one node without other options is standalone",
                 "[unit][launcher]") {
  const AgentOptions plan = agent({"x.py", "a"});
  CHECK(plan.min_nodes == 1);
  CHECK(plan.max_nodes == 1);
  CHECK(plan.local_world_size == 1);
  CHECK(plan.rendezvous.standalone);
  CHECK(plan.rendezvous.backend == RendezvousBackend::C10d);
  CHECK(plan.rendezvous.endpoint == "localhost:0");
  CHECK(plan.run_id == "new-id");
  CHECK(plan.command == Words{"/usr/bin/python3", "-u", "x.py", "a"});
  CHECK(plan.first_argument == 1);
  CHECK(plan.entry_point == "x.py");
  CHECK_FALSE(plan.local_rank_argument_at);
  CHECK(plan.shutdown_timeout == 30s);
  CHECK(plan.signals_to_handle == std::vector<int>{SIGTERM, SIGINT, SIGHUP, SIGQUIT});
  CHECK(plan.signals_to_handle_text == "SIGTERM,SIGINT,SIGHUP,SIGQUIT");
  CHECK(warnings({"x.py"}).empty());
}

TEST_CASE_METHOD(PlanFixture, "plan: node counts", "[unit][launcher]") {
  CHECK(agent({"--nnodes", " 1 : 4 ", "x"}).max_nodes == 4);
  CHECK(agent({"--nnodes", "1_0", "x"}).min_nodes == 10);
  for (const char* bad : {"", "a", "1:2:3", "0", "0:2", "3:2", "-1", "1:", ":", "2000000"})
    CHECK_THAT(error({std::string("--nnodes=") + bad, "x"}), Contains("--nnodes is"));
  environment["PET_NNODES"] = "zwei";
  CHECK_THAT(error({"x"}), Contains("PET_NNODES is 'zwei'"));
}

TEST_CASE_METHOD(PlanFixture, "plan: --standalone is one node, whatever else is given",
                 "[unit][launcher]") {
  const Words words = {"--standalone",
                       "--nnodes=1:4",
                       "--rdzv-backend",
                       "etcd",
                       "--rdzv-id=7",
                       "--rdzv-endpoint",
                       "h:1",
                       "x"};
  CHECK(agent(words).max_nodes == 1);
  CHECK(agent(words).run_id == "new-id");
  CHECK(agent(words).rendezvous.endpoint == "localhost:0");
  CHECK(warnings(words).size() == 3);
  CHECK_THAT(error({"--standalone", "--nnodes", "2", "x"}), Contains("this node alone"));
}

TEST_CASE_METHOD(PlanFixture, "plan: --http, where this node hosts a rendezvous",
                 "[unit][launcher]") {
  CHECK(agent({"x"}).rendezvous.http.empty());
  const RendezvousOptions alone = agent({"--standalone", "--http=0", "x"}).rendezvous;
  CHECK(alone.standalone);
  CHECK(alone.http == "0");
  CHECK(alone.host == "127.0.0.1");
  CHECK(alone.settings.is_host == true);
  CHECK(alone.settings.run.max_nodes == 1);
  const Words nodes = {
      "--http", "127.0.0.1:9400", "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h", "x"};
  CHECK(agent(nodes).rendezvous.http == "127.0.0.1:9400");
  CHECK_FALSE(agent(nodes).rendezvous.settings.is_host);
  environment["MUSTER_HTTP"] = "nonsense";
  CHECK_THAT(error({"x"}), Contains("MUSTER_HTTP: 'nonsense' is neither a port"));
}

TEST_CASE_METHOD(PlanFixture, "plan: --rdzv-id is kept on one node", "[unit][launcher]") {
  CHECK(agent({"--rdzv-id", "job7", "x"}).run_id == "job7");
  CHECK(agent({"--rdzv-id", "job7", "x"}).rendezvous.standalone);
  CHECK(agent({"--rdzv-id=", "x"}).run_id == "new-id");
  CHECK(warnings({"--rdzv-id=", "x"}).size() == 1);
  CHECK_THAT(error({"--rdzv-id", "a/b", "x"}), Contains("slash"));
}

TEST_CASE_METHOD(PlanFixture, "plan: a master port selects static", "[unit][launcher]") {
  const AgentOptions plan = agent({"--master-port", "29511", "x"});
  CHECK(plan.rendezvous.backend == RendezvousBackend::Static);
  CHECK_FALSE(plan.rendezvous.standalone);
  CHECK(plan.rendezvous.host == "127.0.0.1");
  CHECK(plan.rendezvous.port == 29511);
  CHECK(plan.run_id == "none");
  CHECK_THAT(error({"--master-port", "99999", "x"}), Contains("0 to 65535"));
  const Words ipv6 = {"--master-port=5", "--master-addr", "::1", "x"};
  CHECK(agent(ipv6).rendezvous.host == "::1");
  CHECK(agent(ipv6).rendezvous.endpoint == "[::1]:5");
  CHECK(agent({"--master-port=5", "--master-addr", "[::1]", "x"}).rendezvous.host == "::1");
}

TEST_CASE_METHOD(PlanFixture, "plan: several nodes", "[unit][launcher]") {
  const AgentOptions fixed = agent({"--nnodes=2", "--node-rank=1", "--master-addr=h", "x"});
  CHECK(fixed.rendezvous.host == "h");
  CHECK(fixed.rendezvous.port == 29500);
  CHECK(fixed.rendezvous.node_rank == 1);
  const AgentOptions c10d =
      agent({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h:7", "x"});
  CHECK(c10d.rendezvous.backend == RendezvousBackend::C10d);
  CHECK(c10d.rendezvous.endpoint == "h:7");
  CHECK(c10d.run_id == "none");
  CHECK_THAT(error({"--rdzv-backend=zoo", "x"}), Contains("--rdzv-backend is 'zoo': give c10d"));
  CHECK_THAT(error({"--rdzv-backend=c01d", "x"}), Contains("'c01d' (did you mean c10d?): give"));
  CHECK(c10d.rendezvous.further.empty());
  CHECK_THAT(error({"--nnodes=2", "--rdzv-endpoint=h", "x"}), Contains("needs a port"));
  CHECK_THAT(warnings({"--nnodes=2", "--rdzv-endpoint=h:1", "x"}).at(0), Contains("c10d"));
}

TEST_CASE_METHOD(PlanFixture, "plan: several endpoints", "[unit][launcher]") {
  const auto meets = [&](const std::string& endpoint, const std::string& conf = "") {
    return error({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=" + endpoint,
                  "--rdzv-conf=" + conf, "x"});
  };
  const RendezvousOptions rendezvous =
      agent({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint= a:1, b ,[::1]:3", "x"})
          .rendezvous;
  CHECK(rendezvous.endpoint == "a:1,b,[::1]:3");
  CHECK(rendezvous.host == "a");
  CHECK(rendezvous.port == 1);
  CHECK(rendezvous.further == std::vector<RendezvousEndpoint>{{"b", 29400}, {"::1", 3}});
  CHECK_THAT(meets("a:1,,b:2"), Contains("missing before or after a comma"));
  CHECK_THAT(meets("a:1,"), Contains("missing before or after a comma"));
  CHECK_THAT(meets("a:1,b:x"), Contains("'x' must be a number"));
  CHECK_THAT(meets("a:1,b:2,a:1"), Contains("names a:1 twice"));
  CHECK_THAT(meets("a:1,b:2", "is_host=true"), Contains("several musterds"));
  std::string many = "h0";
  for (std::size_t i = 1; i <= kMaxEndpoints; ++i)
    many += ",h" + std::to_string(i);
  CHECK_THAT(meets(many), Contains("at most 16"));
  CHECK_THAT(error({"--nnodes=2", "--rdzv-endpoint=a:1,b:2", "x"}), Contains("is no host name"));
}

TEST_CASE_METHOD(PlanFixture, "plan: restarts, interval, timeout", "[unit][launcher]") {
  CHECK(agent({"--max-restarts", "3", "x"}).max_restarts == 3);
  CHECK_THAT(error({"--max-restarts", "-1", "x"}), Contains("0 or more"));
  for (const char* bad : {"0", "-1", "nan"})
    CHECK_THAT(error({"--monitor-interval", bad, "x"}), Contains("above 0"));
  CHECK(agent({"--shutdown-timeout", "0", "x"}).shutdown_timeout == 0s);
  CHECK_THAT(error({"--shutdown-timeout", "-1", "x"}), Contains("0 seconds or more"));
  environment["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = "7";
  CHECK(agent({"x"}).shutdown_timeout == 7s);
  CHECK(agent({"--shutdown-timeout", "9", "x"}).shutdown_timeout == 9s);
  environment["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = "soon";
  CHECK_THAT(error({"x"}), Contains("TORCH_ELASTIC_SHUTDOWN_TIMEOUT"));
  CHECK(agent({"--shutdown-timeout", "9", "x"}).shutdown_timeout == 9s);
}

TEST_CASE_METHOD(PlanFixture, "plan: the first error is the one that torchrun would report",
                 "[unit][launcher]") {
  CHECK_THAT(error({"--nnodes=0", "--max-restarts=-1", "x"}), Contains("--nnodes"));
  CHECK_THAT(error({"--max-restarts=-1", "--nproc-per-node=foo", "x"}), Contains("--max-restarts"));
  CHECK_THAT(error({"--nproc-per-node=foo", "--rdzv-conf=a", "x"}), Contains("--nproc-per-node"));
  CHECK_THAT(error({"--rdzv-conf=a", "--local-ranks-filter=a", "x"}), Contains("--rdzv-conf"));
  CHECK_THAT(error({"--local-ranks-filter=a", "-r9", "x"}), Contains("--local-ranks-filter"));
  CHECK_THAT(error({"-r9", "--shutdown-timeout=-1", "x"}), Contains("--redirects"));
  CHECK_THAT(error({"--shutdown-timeout=-1", "-m", "--no-python", "x"}), Contains("shutdown"));
  CHECK_THAT(error({"-m", "--no-python", "--master-port=-1", "x"}), Contains("contradict"));
  CHECK_THAT(error({"--master-port=-1", "--nproc-per-node=0", "x"}), Contains("--master-port"));
  CHECK_THAT(error({"--nproc-per-node=0", "--monitor-interval=0", "x"}), Contains("at least one"));
  CHECK_THAT(error({"--monitor-interval=0", ""}), Contains("--monitor-interval"));
  CHECK_THAT(error({""}), Contains("script is empty"));
}

TEST_CASE_METHOD(PlanFixture, "plan: the number of workers", "[unit][launcher]") {
  const auto count = [this](const std::string& text) {
    return agent({"--nproc-per-node", text, "x"}).local_world_size;
  };
  CHECK(count(" 4 ") == 4);
  CHECK(count("cpu") == 8);
  CHECK(count("auto") == 8);
  xpus = 2;
  CHECK(count("xpu") == 2);
  CHECK(count("auto") == 2);
  gpus = 4;
  CHECK(count("gpu") == 4);
  CHECK(count("auto") == 4);
  for (const char* bad : {"CPU", "2.0", "foo", "", "gpu:", "gpu:x", "gpu:4", "gpu:1,1", "70000"})
    CHECK_THAT(error({std::string("--nproc-per-node=") + bad, "x"}), Contains("--nproc-per-node"));
  gpus = 0;
  environment["CUDA_VISIBLE_DEVICES"] = "";
  CHECK_THAT(error({"--nproc-per-node=gpu", "x"}), Contains("CUDA_VISIBLE_DEVICES is ''"));
}

TEST_CASE_METHOD(PlanFixture, "plan: GPUs by number are shown to the workers in that order",
                 "[unit][launcher]") {
  gpus = 6;
  const AgentOptions plan = agent({"--nproc-per-node", "gpu:5,1,3", "x"});
  CHECK(plan.local_world_size == 3);
  CHECK(plan.worker_environment.at("CUDA_VISIBLE_DEVICES") == "5,1,3");
  gpus = 3;
  environment["CUDA_VISIBLE_DEVICES"] = "4, GPU-a,6";
  const AgentOptions within = agent({"--nproc-per-node", "gpu:2,1", "x"});
  CHECK(within.worker_environment.at("CUDA_VISIBLE_DEVICES") == "6,GPU-a");
  CHECK_FALSE(
      agent({"--nproc-per-node", "gpu", "x"}).worker_environment.contains("CUDA_VISIBLE_DEVICES"));
}

TEST_CASE_METHOD(PlanFixture, "plan: threads for each worker", "[unit][launcher]") {
  CHECK_FALSE(agent({"x"}).set_omp_num_threads);
  CHECK(agent({"--nproc-per-node=2", "x"}).set_omp_num_threads);
  CHECK(good({"--nproc-per-node=2", "x"}).notices.size() == 1);
  CHECK(warnings({"--nproc-per-node=2", "--strict", "x"}).empty());
  CHECK(agent({"--nproc-per-node=3", "--omp=auto", "x"}).worker_environment.at("OMP_NUM_THREADS") ==
        "2");
  CHECK(agent({"--omp=5", "x"}).worker_environment.at("OMP_NUM_THREADS") == "5");
  CHECK_THAT(error({"--omp=0", "x"}), Contains("--omp"));
  environment["OMP_NUM_THREADS"] = "";
  CHECK_FALSE(agent({"--nproc-per-node=2", "x"}).set_omp_num_threads);
}

TEST_CASE_METHOD(PlanFixture, "plan: logs", "[unit][launcher]") {
  environment["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"] = "<${rank}>";
  const LogOptions log = agent({"--log-dir=d", "-r1", "-t", "0:2", "--local-ranks-filter= 0 ,1",
                                "--duplicate-stderr-filters=a", "x"})
                             .log;
  CHECK(log.dir == "d");
  CHECK(log.redirects.at(0) == StreamSet{.out = true, .err = false});
  CHECK(log.tee.at(0) == StreamSet{.out = false, .err = true});
  CHECK(log.local_ranks_filter == std::set<int>{0, 1});
  CHECK(log.duplicate_stderr_filters == Words{"a"});
  CHECK(log.prefix_template == "<${rank}>");
  CHECK(agent({"--log-line-prefix-template", "<${hostname}>", "x"}).log.prefix_template ==
        "<${hostname}>");
  CHECK(agent({"--log-line-prefix-template=", "x"}).log.prefix_template == "<${rank}>");
  environment["PET_LOG_LINE_PREFIX_TEMPLATE"] = "(${rank})";
  CHECK(agent({"x"}).log.prefix_template == "(${rank})");
  CHECK(agent({"--log_line_prefix_template=a", "x"}).log.prefix_template == "a");
  environment.erase("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
  CHECK(agent({"x"}).log.prefix_template == "(${rank})");
  environment.erase("PET_LOG_LINE_PREFIX_TEMPLATE");
  CHECK(warnings({"--log-line-prefix-template=a", "-t0:1", "x"}).empty());
  CHECK(warnings({"--log-line-prefix-template=a", "-r3", "x"}) ==
        Words{"--log-line-prefix-template has no effect: no stream is teed; add -t"});
  CHECK(agent({"--log-dir=/dev/null", "-t3", "x"}).log.discard);
  CHECK(agent({"--log-dir=/dev/null", "-t3", "x"}).log.tee == StreamMap{});
  CHECK(warnings({"--log-dir=/dev/null", "-t3", "-r", "1", "x"}).size() == 2);
  CHECK(agent({"--capture-stderr", "always", "x"}).log.capture_stderr == CaptureStderr::Always);
}

TEST_CASE_METHOD(PlanFixture, "plan: the worker's command", "[unit][launcher]") {
  CHECK(agent({"-m", "pkg.mod", "a"}).command ==
        Words{"/usr/bin/python3", "-u", "-m", "pkg.mod", "a"});
  CHECK(agent({"--no-python", "./prog", "a"}).command == Words{"./prog", "a"});
  programs.clear();
  CHECK(agent({"--no-python", "./prog"}).entry_point == "./prog");
  CHECK_THAT(error({"x.py"}), Contains("no Python was found"));
}

TEST_CASE_METHOD(PlanFixture, "plan: muster-launch inserts --local-rank", "[unit][launcher]") {
  argv0 = "muster-launch";
  CHECK(agent({"x", "a"}).local_rank_argument_at == 3U);
  CHECK(agent({"-m", "x", "a"}).local_rank_argument_at == 4U);
  CHECK_FALSE(agent({"--use-env", "x"}).local_rank_argument_at);
  CHECK_THAT(error({"--no-python", "--nnodes=0", "x"}), Contains("--use-env"));
  CHECK(agent({"--no-python", "--use-env", "x"}).command == Words{"x"});
}

TEST_CASE_METHOD(PlanFixture, "plan: virtual local ranks need a device for each worker",
                 "[unit][launcher]") {
  const Words words = {"--virtual-local-rank", "--nproc-per-node=2", "x"};
  CHECK(agent(words).virtual_local_rank);
  environment["CUDA_VISIBLE_DEVICES"] = "0,1";
  CHECK(agent(words).virtual_local_rank);
  for (const char* devices : {"", "7"}) {
    environment["CUDA_VISIBLE_DEVICES"] = devices;
    CHECK_THAT(error(words), Contains("that is '" + std::string(devices) + "'"));
    CHECK_THAT(error(words), Contains("there are 2 workers"));
  }
  environment["HIP_VISIBLE_DEVICES"] = "4,6";  // Goes before CUDA_VISIBLE_DEVICES.
  CHECK(agent(words).virtual_local_rank);
  environment["CUDA_VISIBLE_DEVICES"] = "0,1";
  environment["HIP_VISIBLE_DEVICES"] = "4";
  CHECK_THAT(error(words), Contains("one entry of HIP_VISIBLE_DEVICES, but that is '4'"));
  environment["HIP_VISIBLE_DEVICES"] = "";
  CHECK(agent(words).virtual_local_rank);
}

TEST_CASE_METHOD(PlanFixture, "plan: flags without effect are named", "[unit][launcher]") {
  struct Row {
    Words words;
    std::string says;
  };
  const std::vector<Row> rows = {
      {{"--monitor-interval", "1", "x"}, "--monitor-interval has no effect"},
      {{"--start-method=fork", "x"}, "--start-method has no effect without --run-path"},
      {{"--local_rank=0", "x"}, "--local_rank in front of the script is read as"},
      {{"--master-addr=h", "x"}, "--master-addr has no effect on a single node"},
      {{"--rdzv-backend=c10d", "--master-port=1", "x"}, "--master-port has no effect"},
      {{"--node-rank=1", "x"}, "--node-rank has no effect"},
      {{"-r", "0:1,1:3", "x"}, "-r names local rank 1"},
      {{"--duplicate-stdout-filters=a", "-t2", "x"}, "--duplicate-stdout-filters has no effect"},
      {{"--local-ranks-filter=3", "x"}, "nothing will be shown"},
      {{"--signals-to-handle=SIGTERM,USR2", "x"}, "there is no signal 'USR2'"},
      {{"--run-path", "-m", "x"}, "-m has no effect with --run-path"},
      {{"--run-path", "--no-python", "x"}, "--no-python has no effect with --run-path"},
      {{"--spare", "x"}, "--spare has no effect on a single node"},
      {{"--scale-policy=never", "x"}, "--scale-policy has no effect on a single node"},
      {{"--on-notice=stop", "x"}, "--on-notice has no effect on a single node"},
      {{"--rdzv-conf=join_timeout=5", "x"}, "--rdzv-conf has no effect on a single node"},
      {{"--nnodes=2", "--master-addr=h", "--local-addr=h", "x"}, "--local-addr has no effect"},
      {{"--nnodes=2", "--master-addr=h", "--spare", "x"}, "--spare has no effect with static"},
      {{"--nnodes=1:4", "--rdzv-backend=c10d", "x"}, "no --rdzv-endpoint says where they meet"},
      {{"--capture-stderr=always", "-r3", "x"}, "--capture-stderr has no effect"},
      {{"--rdzv-token-file=f", "x"}, "--rdzv-token-file has no effect in a job of one node"},
      {{"--c10d-allow=off", "x"}, "--c10d-allow has no effect in a job of one node"},
      {{"--nnodes=2", "--master-addr=h", "--c10d-allow=off", "x"},
       "--c10d-allow has no effect with static"},
      {{"--log-on-full=drop", "x"}, "--log-on-full has no effect"},
      {{"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h", "--rdzv-conf=timeout=9", "x"},
       "timeout has no effect with the backend c10d"},
  };
  for (const Row& row : rows) {
    INFO(row.says);
    const auto lines = warnings(row.words);
    REQUIRE(lines.size() == 1);
    CHECK_THAT(lines[0], Contains(row.says));
    Words strict = {"--strict"};
    strict.insert(strict.end(), row.words.begin(), row.words.end());
    CHECK_THAT(error(strict), Contains(row.says));
  }
  CHECK(warnings({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h", "--node-rank=1",
                  "--spare", "--scale-policy=never", "x"})
            .empty());
  // A single node waits for the host that the endpoint names.
  CHECK(warnings({"--rdzv-backend=c10d", "--rdzv-endpoint=h", "--rdzv-conf=read_timeout=5", "x"})
            .empty());
  environment["PET_T"] = "3";
  CHECK_THAT(warnings({"x"}).at(0), Contains("PET_T has no effect"));
}

TEST_CASE_METHOD(PlanFixture, "plan: --signal-to", "[unit][launcher]") {
  CHECK(plan({"x"})->agent.signal_to_leader);
  CHECK(plan({"--signal-to=leader", "x"})->agent.signal_to_leader);
  CHECK_FALSE(plan({"--signal-to=group", "x"})->agent.signal_to_leader);
  environment["MUSTER_SIGNAL_TO"] = "group";
  CHECK_FALSE(plan({"x"})->agent.signal_to_leader);
}

TEST_CASE_METHOD(PlanFixture, "plan: --warm is for Python", "[unit][launcher]") {
  CHECK_FALSE(plan({"x"})->agent.warm);
  const auto warm = plan({"--warm", "--warm-modules=a,b", "x"});
  REQUIRE(warm->agent.warm);
  CHECK(warm->agent.warm->modules == "a,b");
  CHECK_THAT(warm->agent.warm->program, Contains("def preload("));
  CHECK(plan({"--warm", "--run-path", "x"})->agent.warm);
  const auto program = plan({"--warm", "--no-python", "x"});
  CHECK_FALSE(program->agent.warm);
  REQUIRE(program->warnings.size() == 1);
  CHECK_THAT(program->warnings[0], Contains("--warm has no effect with --no-python"));
  const auto alone = plan({"--warm-modules=a", "x"});
  REQUIRE(alone->warnings.size() == 1);
  CHECK_THAT(alone->warnings[0], Contains("--warm-modules has no effect without --warm"));
}

TEST_CASE_METHOD(PlanFixture, "plan: --leftover-timeout", "[unit][launcher]") {
  CHECK(plan({"x"})->agent.leftover_timeout == 30s);
  CHECK(plan({"--leftover-timeout=0", "x"})->agent.leftover_timeout == 0s);
  CHECK(plan({"--leftover-timeout=7.25", "x"})->agent.leftover_timeout == 7250ms);
  CHECK(plan({"--leftover-timeout=1e300", "x"})->agent.leftover_timeout > 24h);
  for (const char* wrong : {"-2", "nan"}) {
    const auto result = plan({std::string("--leftover-timeout=") + wrong, "x"});
    REQUIRE(result.has_error());
    CHECK_THAT(result.error().message, Contains("--leftover-timeout"));
  }
}

TEST_CASE_METHOD(PlanFixture, "plan: the hang timeout is any number of seconds above 0",
                 "[unit][launcher]") {
  using namespace std::chrono_literals;
  CHECK(plan({"x"})->agent.hang_timeout == 0s);
  CHECK(plan({"--hang-timeout=1.5", "x"})->agent.hang_timeout == 1500ms);
  CHECK(plan({"--hang-timeout=1e300", "x"})->agent.hang_timeout > 24h);
  for (const char* wrong : {"0", "-1", "nan"}) {
    const auto result = plan({std::string("--hang-timeout=") + wrong, "x"});
    REQUIRE_FALSE(result.has_value());
    CHECK_THAT(result.error().message, Contains("--hang-timeout"));
  }
}

TEST_CASE_METHOD(PlanFixture, "plan: a plug-in for the logs gets the options, and our Python",
                 "[unit][launcher]") {
  CHECK_FALSE(plan({"--logs-specs=default", "--log-dir=d", "x"})->agent.log.specs);
  CHECK(plan({"--logs-specs=default", "--log-dir=d", "x"})->agent.log.dir == "d");
  const auto result = plan({"--logs-specs=mine", "--log-dir=/dev/null", "-r3", "x"});
  REQUIRE(result.has_value());
  const LogOptions& log = result->agent.log;
  REQUIRE(log.specs);
  CHECK(log.specs->name == "mine");
  CHECK(log.specs->log_dir == "/dev/null");
  CHECK(log.dir.empty());
  CHECK_FALSE(log.discard);
  CHECK(log.redirects.all == StreamSet{.out = true, .err = true});
  REQUIRE(log.specs->command.size() == 4);
  CHECK(log.specs->command[0] == result->agent.command[0]);
  CHECK_THAT(log.specs->command[3], Contains("torchrun.logs_specs"));
  CHECK(result->warnings.empty());
}

TEST_CASE_METHOD(PlanFixture, "plan: a rendezvous through etcd", "[unit][launcher]") {
  const auto with = [this](const char* backend, Words more) {
    Words words = {backend, "--nnodes=2", "--rdzv-endpoint=a,b:1"};
    words.insert(words.end(), more.begin(), more.end());
    words.emplace_back("x");
    return agent(words).rendezvous;
  };
  RendezvousOptions etcd = with("--rdzv-backend=etcd", {});
  CHECK(etcd.backend == RendezvousBackend::Etcd);
  CHECK(etcd.backend_name == "etcd");
  CHECK(etcd.host == "a");
  CHECK(etcd.port == 2379);
  CHECK(etcd.further == std::vector<RendezvousEndpoint>{{"b", 1}});
  CHECK(etcd.etcd.prefix == "/torchelastic/p2p");
  CHECK(etcd.etcd.host_lease == std::chrono::seconds(3));
  CHECK_FALSE(etcd.shares_store);  // TORCHELASTIC_USE_AGENT_STORE, as under torchrun.

  const char* conf = "--rdzv-conf=timeout=7,etcd_prefix=jobs/,host_lease=9,last_call_timeout=2";
  etcd = with("--rdzv-backend=etcd", {conf});
  CHECK(etcd.settings.run.join_timeout == std::chrono::seconds(7));
  CHECK(etcd.settings.run.last_call_timeout == std::chrono::seconds(2));
  CHECK(etcd.etcd.prefix == "/jobs");
  CHECK(etcd.etcd.host_lease == std::chrono::seconds(9));

  etcd = with("--rdzv-backend=etcd-v2", {"--rdzv-conf=prefix=/x/y,read_timeout=5"});
  CHECK(etcd.backend == RendezvousBackend::Etcd);
  CHECK(etcd.backend_name == "etcd-v2");
  CHECK(etcd.etcd.prefix == "/x/y");
  CHECK(etcd.shares_store);
  CHECK_FALSE(etcd.etcd.speaks_tls);

  etcd = with("--rdzv-backend=etcd", {"--rdzv-conf=protocol=HTTPS,cacert=ca,cert=c,key=k"});
  CHECK(etcd.etcd.speaks_tls);
  CHECK(etcd.etcd.tls_ca == "ca");
  CHECK(etcd.etcd.tls_certificate == "c");
  CHECK(etcd.etcd.tls_key == "k");
  etcd = with("--rdzv-backend=etcd-v2",
              {"--rdzv-conf=protocol=https,ca_cert=ca,ssl_cert=c,ssl_cert_key=k"});
  CHECK(etcd.etcd.tls_ca == "ca");
  CHECK(etcd.etcd.tls_key == "k");

  const auto says = [this](const char* value) {
    return error({"--rdzv-backend=etcd", "--nnodes=2", "--rdzv-endpoint=a", value, "x"});
  };
  CHECK_THAT(says("--rdzv-conf=etcd_prefix=a b"), Contains("prefix") && Contains("'a b'"));
  CHECK_THAT(says("--rdzv-conf=protocol=https,cert=c"), Contains("needs its key"));
  CHECK_THAT(says("--rdzv-conf=cacert=c"), Contains("give protocol=https, too"));
  CHECK_THAT(says("--rdzv-conf=host_lease=99999"), Contains("host_lease"));
}

TEST_CASE_METHOD(PlanFixture, "plan: the nodes' rendezvous", "[unit][launcher]") {
  const auto rendezvous = [this](Words words) {
    words.insert(words.end(), {"--rdzv-backend=c10d", "x"});
    const auto made = plan(words);
    REQUIRE(made.has_value());
    return made->agent.rendezvous;
  };
  const auto plain = rendezvous({"--nnodes=2:4", "--rdzv-endpoint=h", "--max-restarts=3"});
  CHECK(plain.host == "h");
  CHECK(plain.port == 29400);
  CHECK(plain.settings.run.min_nodes == 2);
  CHECK(plain.settings.run.max_nodes == 4);
  CHECK(plain.settings.run.max_restarts == 3);
  CHECK_FALSE(plain.preferred_rank.has_value());
  CHECK(rendezvous({"--node-rank=3"}).preferred_rank == 3);
  CHECK_FALSE(rendezvous({"--node-rank=-1"}).preferred_rank.has_value());
  CHECK(rendezvous({"--spare"}).settings.spare);
  CHECK(rendezvous({"--scale-policy=never"}).settings.run.scale_policy == ScalePolicy::Never);
  CHECK(rendezvous({}).settings.run.on_notice == OnNotice::Auto);
  CHECK(rendezvous({"--on-notice=shrink"}).settings.run.on_notice == OnNotice::Shrink);
  CHECK(rendezvous({"--rdzv-conf=on_notice=stop"}).settings.run.on_notice == OnNotice::Stop);
  CHECK_THAT(error({"--rdzv-backend=c10d", "--rdzv-conf=on_notice=never", "x"}),
             Contains("must be auto, stop or shrink"));
  CHECK(rendezvous({}).settings.run.restart_policy == RestartPolicy{});
  CHECK(rendezvous({"--restart-policy=nodes=1"}).settings.run.restart_policy ==
        RestartPolicy{.on = true, .nodes = 1});
  CHECK(rendezvous({}).token_file.empty());
  CHECK(rendezvous({"--rdzv-token-file=f"}).token_file == "f");
  CHECK_THAT(error({"--rdzv-backend=c10d", "--rdzv-token-file=", "x"}), Contains("is empty"));
  CHECK_THAT(error({"--nnodes=2", "--master-addr=h", "--rdzv-token-file=f", "x"}),
             Contains("--rdzv-token-file cannot protect the static backend"));
  CHECK(rendezvous({}).tls_ca.empty());
  CHECK(rendezvous({"--rdzv-tls-ca=ca"}).tls_ca == "ca");
  CHECK(rendezvous({"--rdzv-tls-ca=ca", "--rdzv-tls-cert=c", "--rdzv-tls-key=k"}).tls_key == "k");
  CHECK_THAT(error({"--rdzv-backend=c10d", "--rdzv-tls-cert=c", "x"}), Contains("needs its key"));
  const Words tls{"--rdzv-tls-ca=ca", "--rdzv-tls-cert=c", "--rdzv-tls-key=k"};
  const auto with_names = [&](const std::string& names) {
    Words words = tls;
    words.push_back("--rdzv-tls-allow=" + names);
    return words;
  };
  CHECK(rendezvous(tls).tls_allow == nullptr);
  const auto allow = rendezvous(with_names("node1,*.b.org")).tls_allow;
  REQUIRE(allow != nullptr);
  CHECK(allow->scope_of(std::vector<std::string>{"x.b.org"}).admits("any"));
  CHECK_FALSE(allow->scope_of(std::vector<std::string>{"node2"}).admits("any"));
  Words wrong_names = with_names("node 1");
  wrong_names.insert(wrong_names.end(), {"--rdzv-backend=c10d", "x"});
  CHECK_THAT(error(wrong_names),
             Contains("--rdzv-tls-allow") && Contains("'node 1' is no DNS name"));
  CHECK_THAT(error({"--rdzv-backend=c10d", "--rdzv-tls-ca=ca", "--rdzv-tls-allow=node1", "x"}),
             Contains("--rdzv-tls-allow is for a rendezvous that this node hosts with TLS"));
  CHECK_THAT(error({"--rdzv-backend=etcd", "--rdzv-endpoint=e:1", "--rdzv-tls-ca=c", "x"}),
             Contains("every node may become the host"));
  CHECK(rendezvous({"--rdzv-conf=lease=7"}).settings.lease == std::chrono::seconds(7));
  environment["JOB_COMPLETION_INDEX"] = "5";
  CHECK(rendezvous({}).preferred_rank == 5);
  environment["SLURM_NODEID"] = "2";
  CHECK(rendezvous({}).preferred_rank == 2);
  CHECK(rendezvous({"--node-rank=0"}).preferred_rank == 0);

  const auto wrong = plan({"--nnodes=2", "--node-rank=2", "--master-addr=h", "x"});
  REQUIRE_FALSE(wrong.has_value());
  CHECK_THAT(wrong.error().message, Contains("--node-rank is 2"));
  CHECK_THAT(error({"--nnodes=2", "--master-addr=", "--master-port=5", "x"}),
             Contains("--master-addr is '':"));
}

TEST_CASE_METHOD(PlanFixture, "plan: --restart-policy has the budgets by cause",
                 "[unit][launcher]") {
  CHECK(agent({"x"}).restart_policy == RestartPolicy{});
  const AgentOptions plan = agent({"--restart-policy=failures=3,hangs=2,nodes=10", "x"});
  CHECK(plan.max_restarts == 3);
  CHECK(plan.restart_policy == RestartPolicy{.on = true, .hangs = 2, .nodes = 10});
  const AgentOptions beside = agent({"--max-restarts=4", "--restart-policy=hangs=2", "x"});
  CHECK(beside.max_restarts == 4);
  CHECK(beside.restart_policy == RestartPolicy{.on = true, .hangs = 2});
  CHECK(agent({"--max-restarts=3", "--restart-policy=failures=3", "x"}).max_restarts == 3);
  CHECK(
      error({"--max-restarts=2", "--restart-policy=failures=3", "x"}) ==
      "--restart-policy has failures=3, and --max-restarts is 2: both are the budget of failures; "
      "leave out one of the two");
  CHECK(error({"--restart-policy=failure=3", "x"}) ==
        "--restart-policy has \"failure\": did you mean failures?");
  CHECK(agent({"--progress-file=/data/step", "x"}).progress_file == "/data/step");
  CHECK(agent({"--progress-file=step", "x"}).progress_file.front() == '/');
  CHECK_THAT(error({"--progress-file=", "x"}), Contains("must name a file"));
}

}  // namespace
}  // namespace muster::testing
