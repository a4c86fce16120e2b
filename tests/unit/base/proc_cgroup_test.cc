#include "base/proc_cgroup.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

TEST_CASE("proc cgroup: a controller of v1 goes before the unified hierarchy",
          "[unit][rendezvous]") {
  CHECK(controller_cgroup("5:cpu,cpuacct:/a\n4:memory:/job/1\n0::/x\n", "memory") ==
        ControllerCgroup{"/job/1", false});
  CHECK(controller_cgroup("4:hugetlb,memory:/both\n", "memory") ==
        ControllerCgroup{"/both", false});
  CHECK(controller_cgroup("0::/slurm/job:7\n", "memory") == ControllerCgroup{"/slurm/job:7", true});
  CHECK_FALSE(controller_cgroup("5:cpu:/a\n1:name=systemd:/s\n", "memory"));
  CHECK_FALSE(controller_cgroup("", "memory"));
}

TEST_CASE("proc cgroup: each controller may be in another hierarchy", "[unit][rendezvous]") {
  const char* const hybrid = "8:pids:/user\n5:cpu,cpuacct:/a\n1:name=systemd:/s\n0::/unified\n";
  CHECK(controller_cgroup(hybrid, "cpu") == ControllerCgroup{"/a", false});
  CHECK(controller_cgroup(hybrid, "pids") == ControllerCgroup{"/user", false});
  CHECK(controller_cgroup(hybrid, "memory") == ControllerCgroup{"/unified", true});
}

}  // namespace
}  // namespace muster
