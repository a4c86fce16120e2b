#include "musterctl/doctor.h"

#include <algorithm>
#include <string>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace muster::ctl::testing {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

struct DoctorTest {
  Check check(const std::string& name, std::size_t index = 0) {
    for (const Check& one : judge(facts))
      if (one.name == name && index-- == 0) return one;
    FAIL("there is no check " + name);
    return {};
  }
  // The facts of a healthy machine.
  DoctorFacts facts{.host_name = "node1",
                    .host_addresses = {"10.0.0.1"},
                    .interfaces = {{"eth0", {"10.0.0.1"}}, {"lo", {"127.0.0.1"}}},
                    .shm_bytes = 8 * kGiB,
                    .shm_free_bytes = 8 * kGiB,
                    .limits = {{"nofile", 65536}, {"nproc", 65536}, {"memlock", kNoLimit}},
                    .cores = 8,
                    .folders = {{"TMPDIR", "/tmp", true, 100 * kGiB}},
                    .python = "/usr/bin/python3",
                    .python_version = "Python 3.11.2",
                    .torch_version = "2.13.0"};
};

TEST_CASE_METHOD(DoctorTest, "doctor: a healthy machine has no warning", "[unit][musterctl]") {
  for (const Check& one : judge(facts)) {
    INFO(one.name << ": " << one.found);
    CHECK(one.verdict == Verdict::Ok);
  }
}

TEST_CASE_METHOD(DoctorTest, "doctor: every check that is not ok has a remedy",
                 "[unit][musterctl]") {
  facts = {.host_name = "node1",
           .host_error = "Name or service not known",
           .interface_variables = {{"GLOO_SOCKET_IFNAME", "ib0"}},
           .endpoints = {{.what = "rendezvous", .endpoint = "x:1", .error = "refused"}},
           .limits = {{"nofile", 256}, {"nproc", 10}, {"memlock", 65536}},
           .gpus = 8,
           .cgroup = {.pids_max = 100},
           .folders = {{"TMPDIR", "/nowhere", false, 0}}};
  for (const Check& one : judge(facts)) {
    INFO(one.name << ": " << one.found);
    CHECK((one.verdict == Verdict::Ok || !one.remedy.empty()));
  }
}

TEST_CASE_METHOD(DoctorTest, "doctor: temporary files that go elsewhere are a warning",
                 "[unit][musterctl]") {
  facts.folders = {{"TMPDIR", "/var/tmp", true, 9 * kGiB, "/scratch/none"}};
  CHECK(check("folder").verdict == Verdict::Warning);
  CHECK_THAT(check("folder").found, Catch::StartsWith("TMPDIR /scratch/none cannot be written; "
                                                      "/var/tmp has 9"));
  facts.folders[0].free_bytes = 1 << 20;
  CHECK(check("folder").verdict == Verdict::Failure);
  CHECK_THAT(check("folder").remedy, Catch::StartsWith("free some room"));
}

TEST_CASE_METHOD(DoctorTest,
                 "doctor: the firewall is no remedy where musterd has answered with a refusal",
                 "[unit][musterctl]") {
  facts.endpoints = {
      {.what = "musterd's HTTP", .endpoint = "x:1", .error = "this musterd speaks HTTPS"}};
  CHECK_THAT(check("endpoint").remedy, Catch::Contains("firewall"));
  facts.endpoints[0].refused = true;
  CHECK(check("endpoint").verdict == Verdict::Failure);
  CHECK_THAT(check("endpoint").found, Catch::Contains("this musterd speaks HTTPS"));
  CHECK_THAT(check("endpoint").remedy, !Catch::Contains("firewall"));
}

TEST_CASE_METHOD(DoctorTest, "doctor: hosts that do not share their state are a failure",
                 "[unit][musterctl]") {
  facts.endpoints = {{.what = "rendezvous", .endpoint = "h1:1"},
                     {.what = "rendezvous", .endpoint = "h2:1"},
                     {.what = "musterd's HTTP", .endpoint = "h1:2"}};
  facts.hosts = {{"10.0.0.1:1", "aa", true}, {"10.0.0.2:1", "aa", true}};
  CHECK(check("state").verdict == Verdict::Ok);
  CHECK_FALSE(has_failure(judge(facts)));
  facts.hosts.push_back({"10.0.0.3:1", "bb", false});
  CHECK(check("state").verdict == Verdict::Failure);
  CHECK_THAT(check("state").found, Catch::Contains("10.0.0.1:1 and 10.0.0.3:1"));
}

TEST_CASE_METHOD(DoctorTest, "doctor: one of several endpoints may be a musterd that stands by",
                 "[unit][musterctl]") {
  facts.endpoints = {{.what = "rendezvous", .endpoint = "h1:1", .error = "refused"},
                     {.what = "rendezvous", .endpoint = "h2:1"}};
  facts.hosts = {{"10.0.0.2:1", "aa", true}};
  CHECK_FALSE(has_failure(judge(facts)));
  CHECK(check("endpoint").verdict == Verdict::Note);
  facts.hosts[0].state_is_shared = false;
  CHECK(check("state").verdict == Verdict::Warning);
  CHECK_THAT(check("state").found, Catch::Contains("h1:1 does not answer"));
  facts.endpoints[1].error = "refused";
  facts.hosts.clear();
  CHECK(has_failure(judge(facts)));
}

TEST_CASE_METHOD(DoctorTest, "doctor: this host's name at 127.0.1.1 is found",
                 "[unit][musterctl]") {
  facts.host_addresses = {"127.0.1.1"};
  CHECK(check("host_name").verdict == Verdict::Warning);
  CHECK_THAT(check("host_name").remedy, Catch::Contains("/etc/hosts"));
  facts.host_addresses = {"127.0.1.1", "10.0.0.1"};
  CHECK(check("host_name").verdict == Verdict::Ok);
}

TEST_CASE_METHOD(DoctorTest, "doctor: interfaces are named as Gloo and NCCL read them",
                 "[unit][musterctl]") {
  const auto verdict = [&](const std::string& variable, const std::string& value) {
    facts.interface_variables = {{variable, value}};
    return check("interface").verdict;
  };
  CHECK(verdict("GLOO_SOCKET_IFNAME", "eth0") == Verdict::Ok);
  CHECK(verdict("GLOO_SOCKET_IFNAME", "eth") == Verdict::Failure);
  CHECK(verdict("GLOO_SOCKET_IFNAME", "eth0,ib0") == Verdict::Failure);
  CHECK(verdict("NCCL_SOCKET_IFNAME", "eth") == Verdict::Ok);  // NCCL accepts a prefix.
  CHECK(verdict("NCCL_SOCKET_IFNAME", "=eth") == Verdict::Failure);
  CHECK(verdict("NCCL_SOCKET_IFNAME", "^docker") == Verdict::Ok);
  CHECK(verdict("NCCL_SOCKET_IFNAME", "ib0") == Verdict::Failure);
  CHECK_THAT(check("interface").remedy, Catch::Contains("eth0, lo"));
}

TEST_CASE_METHOD(DoctorTest, "doctor: NCCL needs one interface that matches any word of its list",
                 "[unit][musterctl]") {
  const auto verdict = [&](const std::string& value) {
    facts.interface_variables = {{"NCCL_SOCKET_IFNAME", value}};
    return check("interface").verdict;
  };
  for (const char* right : {"eth,ib", "ib,eth", "=ib0,eth0", "=eth0:4711,ib0", "^ib,docker", "^eth",
                            "^=eth", "ib,,eth", "", "^", "="}) {
    INFO(right);
    CHECK(verdict(right) == Verdict::Ok);
  }
  for (const char* wrong : {"ib,mlx", "=ib0,eth", "=eth,lo0", "^eth,lo", "^=eth0,lo"}) {
    INFO(wrong);
    CHECK(verdict(wrong) == Verdict::Failure);
  }
  CHECK(verdict("ib,mlx") == Verdict::Failure);
  CHECK_THAT(check("interface").found, Catch::Contains("'ib', 'mlx'"));
  CHECK(verdict("^eth,lo") == Verdict::Failure);
  CHECK_THAT(check("interface").found, Catch::Contains("leaves out every interface"));
}

TEST_CASE_METHOD(DoctorTest, "doctor: docker's small /dev/shm is found", "[unit][musterctl]") {
  facts.shm_bytes = facts.shm_free_bytes = std::uint64_t{64} << 20;
  CHECK(check("shared_memory").verdict == Verdict::Warning);
  CHECK_THAT(check("shared_memory").remedy, Catch::Contains("--shm-size"));
  facts.shm_free_bytes = 0;
  CHECK(check("shared_memory").verdict == Verdict::Failure);
}

TEST_CASE_METHOD(DoctorTest, "doctor: a clock that is off is a warning, then a failure",
                 "[unit][musterctl]") {
  facts.endpoints = {{.what = "musterd's HTTP", .endpoint = "m:1", .connect_ms = 1}};
  facts.endpoints[0].clock_ahead_seconds = -0.2;
  CHECK(check("clock").verdict == Verdict::Ok);
  facts.endpoints[0].clock_ahead_seconds = -2.0;
  CHECK(check("clock").verdict == Verdict::Warning);
  CHECK_THAT(check("clock").found, Catch::Contains("2.00 s behind"));
  facts.endpoints[0].clock_ahead_seconds = 3600;
  CHECK(check("clock").verdict == Verdict::Failure);
}

TEST_CASE_METHOD(DoctorTest, "doctor: memory that is nearly used up is found",
                 "[unit][musterctl]") {
  facts.cgroup.memory_max = 10 * kGiB;
  facts.cgroup.memory_used = 5 * kGiB;
  CHECK(check("cgroup").verdict == Verdict::Ok);
  facts.cgroup.memory_used = 10 * kGiB - 1;
  CHECK(check("cgroup").verdict == Verdict::Warning);
}

TEST_CASE_METHOD(DoctorTest, "doctor: a quota of CPU time below the cores is a warning",
                 "[unit][musterctl]") {
  facts.cgroup.cores = 8;
  CHECK(check("cgroup").verdict == Verdict::Ok);
  facts.cgroup.cores = 2.5;
  CHECK(check("cgroup").verdict == Verdict::Warning);
  CHECK(check("cgroup").found == "2.5 of 8 cores");
  CHECK_THAT(check("cgroup").remedy, Catch::Contains("--nproc-per-node=auto"));
}

TEST_CASE_METHOD(DoctorTest, "doctor: a user without a name is a warning", "[unit][musterctl]") {
  facts.uid = 40123;
  facts.has_user_name = false;
  facts.home = "/root";
  facts.home_is_writable = false;
  CHECK(check("user").verdict == Verdict::Warning);
  CHECK(check("user").found ==
        "uid 40123 has no name (getpwuid fails), and HOME is /root, which cannot be written");
  CHECK_THAT(check("user").remedy, Catch::Contains("TORCHINDUCTOR_CACHE_DIR"));
  facts.home.clear();
  CHECK_THAT(check("user").found, Catch::Contains("HOME is not set"));
  facts.has_compile_cache = true;
  CHECK_THAT(check("user").remedy, !Catch::Contains("torch.compile"));
}

TEST_CASE_METHOD(DoctorTest, "doctor: a loopback interface that is down is a failure",
                 "[unit][musterctl]") {
  facts.loopback_is_down = true;
  facts.interfaces = {};
  CHECK(check("loopback").verdict == Verdict::Failure);
  CHECK_THAT(check("loopback").remedy, Catch::Contains("ip link set lo up"));
  CHECK_THAT(check("network").remedy, !Catch::Contains("jobs of one node will run"));
  facts.interfaces = {{"eth0", {"10.0.0.1"}}};
  CHECK(has_failure(judge(facts)));
}

TEST_CASE_METHOD(DoctorTest, "doctor: GPUs that are not well are named", "[unit][musterctl]") {
  facts.gpus = 2;
  facts.gpu_health.gpus = {{.name = "H200"}, {.name = "H200"}};
  CHECK(check("gpu").verdict == Verdict::Ok);
  GpuFacts& second = facts.gpu_health.gpus[1];
  second.slowed_by_heat = true;
  CHECK(check("gpu").verdict == Verdict::Warning);
  CHECK_THAT(check("gpu").found, Catch::Contains("GPU 1 (H200): slowed down by heat"));
  second = {.name = "H200", .uncorrected_errors = 3, .rows_pending = true};
  CHECK_THAT(check("gpu").found, Catch::Contains("3 uncorrected memory errors"));
  CHECK_THAT(check("gpu").remedy, Catch::Contains("reset"));
  second.rows_failed = true;
  CHECK(check("gpu").verdict == Verdict::Failure);
  CHECK_THAT(check("gpu").remedy, Catch::Contains("replaced"));
  facts.gpu_health = {.error = "NVML does not start: error 18"};
  CHECK(check("gpu").verdict == Verdict::Failure);
}

TEST_CASE_METHOD(DoctorTest, "doctor: errors of GPUs in the kernel's log are reported",
                 "[unit][musterctl]") {
  facts.gpus = 1;
  facts.gpu_health.gpus = {{.name = "H200"}};
  facts.gpu_errors.now_seconds = 7300;
  Xid xid{"0000:3b:00", 31, 1, 100, "MMU Fault"};
  SECTION("an error that a program causes is left out") {
    facts.gpu_errors.xids = {xid};
    CHECK(check("gpu").verdict == Verdict::Ok);
  }
  SECTION("an error that needs no action is left out") {
    xid.number = 154;
    xid.text = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)";
    facts.gpu_errors.xids = {xid};
    CHECK(check("gpu").verdict == Verdict::Ok);
  }
  SECTION("an error that may still be present is a warning") {
    xid.number = 95;
    xid.times = 3;
    xid.text = "Uncontained ECC error";
    facts.gpu_errors.xids = {xid};
    CHECK(check("gpu").verdict == Verdict::Warning);
    CHECK(check("gpu").found ==
          "GPU 0000:3b:00: Xid 95, 3 times, last 2 h 0 min ago: Uncontained ECC error");
    CHECK_THAT(check("gpu").remedy, Catch::Contains("--gpu-reset"));
  }
  SECTION("an error that lasts until the machine is restarted is a failure") {
    xid.number = 79;
    facts.gpu_errors.xids = {xid};
    CHECK(check("gpu").verdict == Verdict::Failure);
  }
  SECTION("a user who may not read the log is told so") {
    facts.gpu_errors.error = "/dev/kmsg: Operation not permitted";
    CHECK(check("gpu").verdict == Verdict::Note);
    CHECK_THAT(check("gpu").remedy, Catch::Contains("as root"));
  }
}

TEST_CASE_METHOD(DoctorTest, "doctor: GPUs that torch does not see", "[unit][musterctl]") {
  facts.gpus = 2;
  facts.gpu_health.gpus = {{.name = "H200"}, {.name = "H200"}};
  facts.torch_gpus = 2;
  CHECK(check("gpu").verdict == Verdict::Ok);
  facts.torch_gpus = 0;
  CHECK(check("gpu").verdict == Verdict::Warning);
  CHECK_THAT(check("gpu").found, Catch::Contains("2 GPUs, torch sees 0"));
  facts.torch_gpus = 1;
  facts.visible_gpus = "1";
  CHECK(check("gpu").verdict == Verdict::Note);
}

TEST_CASE("doctor: long texts are broken to the width of a terminal", "[unit][musterctl]") {
  const std::vector<Check> checks{{.name = "host_name",
                                   .verdict = Verdict::Warning,
                                   .found = "a b",
                                   .remedy = "put the address of the network there"},
                                  {.name = "gpu", .found = ""}};
  CHECK(checks_text(checks, 45) ==
        "warning  host_name  a b\n"
        "                    -> put the address of the\n"
        "                    network there\n"
        "ok       gpu        \n\n0 failures, 1 warning\n");
  CHECK_THAT(checks_text(checks), Catch::Contains("-> put the address of the network there\n"));
}

TEST_CASE_METHOD(DoctorTest, "doctor: text and JSON say the same", "[unit][musterctl]") {
  facts.folders[0].writable = false;
  const auto checks = judge(facts);
  CHECK(has_failure(checks));
  CHECK_THAT(checks_text(checks), Catch::Contains("failure  folder"));
  CHECK_THAT(checks_text(checks), Catch::Contains("1 failure, 0 warnings"));
  const auto json = nlohmann::json::parse(checks_json(checks));
  CHECK(json["ok"] == false);
  CHECK(json["checks"].size() == checks.size());
}

}  // namespace muster::ctl::testing
