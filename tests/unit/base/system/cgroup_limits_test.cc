#include "base/system/cgroup_limits.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <catch2/catch.hpp>

#include "tests/support/temp_folder.h"

namespace muster::testing {

struct CgroupLimitsTest : TempFolder {
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((dir / file).parent_path());
    std::ofstream(dir / file) << text;
  }
  CgroupLimits limits(std::string_view proc_cgroup) const {
    return read_cgroup_limits(proc_cgroup, dir.string());
  }
};

TEST_CASE_METHOD(CgroupLimitsTest,
                 "cgroup limits: v2, where the smallest limit up to the root counts",
                 "[unit][rendezvous]") {
  write("job/step/memory.max", "max\n");
  write("job/step/cpu.max", "max 100000\n");
  write("job/memory.max", "8000\n");
  write("job/memory.current", "7900\n");
  write("job/cpu.max", "250000 100000\n");
  write("job/pids.max", "512\n");
  write("pids.max", "600\n");
  const CgroupLimits found = limits("0::/job/step\n");
  CHECK(found.memory_max == 8000U);
  CHECK(found.memory_used == 7900U);
  CHECK(found.cores == 2.5);
  CHECK(found.pids_max == 512U);
}

TEST_CASE_METHOD(CgroupLimitsTest, "cgroup limits: none", "[unit][rendezvous]") {
  for (const char* text : {"", "0::/\n", "0::/gone\n", "4:memory:/gone\n", "nonsense"}) {
    const CgroupLimits found = limits(text);
    CHECK_FALSE((found.memory_max || found.memory_used || found.cores || found.pids_max));
  }
}

TEST_CASE_METHOD(CgroupLimitsTest, "cgroup limits: v1, beside an empty v2 as systemd mounts it",
                 "[unit][rendezvous]") {
  constexpr const char* kHybrid =
      "9:pids:/job\n5:cpu,cpuacct:/job\n4:memory:/job/step\n1:name=systemd:/s\n0::/s\n";
  write("unified/s/cgroup.procs", "1\n");
  write("memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("memory/job/memory.limit_in_bytes", "8000\n");
  write("memory/job/memory.usage_in_bytes", "4000\n");
  write("memory/job/step/memory.limit_in_bytes", "9223372036854710272\n");
  write("cpu/cpu.cfs_quota_us", "-1\n");
  write("cpu/cpu.cfs_period_us", "100000\n");
  write("cpu/job/cpu.cfs_quota_us", "400000\n");
  write("cpu/job/cpu.cfs_period_us", "100000\n");
  write("pids/job/pids.max", "256\n");
  const CgroupLimits found = limits(kHybrid);
  CHECK(found.memory_max == 8000U);
  CHECK(found.memory_used == 4000U);
  CHECK(found.cores == 4.0);
  CHECK(found.pids_max == 256U);
}

TEST_CASE_METHOD(CgroupLimitsTest, "cgroup limits: a container of v1 has its limits at the mount",
                 "[unit][rendezvous]") {
  write("memory/memory.limit_in_bytes", "8000\n");
  write("memory/memory.usage_in_bytes", "4000\n");
  const CgroupLimits found = limits("4:memory:/docker/0123\n");
  CHECK(found.memory_max == 8000U);
  CHECK(found.memory_used == 4000U);
}

TEST_CASE_METHOD(CgroupLimitsTest, "cgroup limits: pages of files are not counted as used",
                 "[unit][rendezvous]") {
  SECTION("v2") {
    write("memory.max", "8000\n");
    write("memory.current", "7900\n");
    write("memory.stat", "anon 900\nfile 7000\nshmem 500\ninactive_file 4000\nactive_file 2500\n");
    CHECK(limits("0::/\n").memory_used == 1400U);
  }
  SECTION("v1, with the cgroups below") {
    write("memory/memory.limit_in_bytes", "8000\n");
    write("memory/memory.usage_in_bytes", "7900\n");
    write("memory/memory.stat",
          "inactive_file 1\nactive_file 2\ntotal_inactive_file 4000\ntotal_active_file 2500\n");
    CHECK(limits("4:memory:/\n").memory_used == 1400U);
  }
  SECTION("more than are used, as the files are read one after the other") {
    write("memory.max", "8000\n");
    write("memory.current", "100\n");
    write("memory.stat", "inactive_file 200\n");
    CHECK(limits("0::/\n").memory_used == 0U);
  }
}

}  // namespace muster::testing
