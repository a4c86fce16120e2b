#include "musterctl/local_jobs.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/temp_folder.h"

namespace muster::ctl::testing {

using Catch::Contains;
using namespace std::string_literals;

struct Process {
  int pid = 0;
  int parent = 0;
  std::string name;
  std::string environment;
  std::string state = "S";
};

// A folder in place of /proc, with a shim 10 and its agent 11.
struct LocalJobsTest : muster::testing::TempFolder {
  LocalJobsTest() {
    add({.pid = 10, .parent = 1, .name = "muster-shim", .environment = "PATH=/bin\0"s});
    add({.pid = 11, .parent = 10, .name = "muster-agent", .environment = "PATH=/bin\0"s});
  }
  void write(const std::string& file, std::string_view text) const {
    std::ofstream(dir / file, std::ios::binary) << text;
  }
  // Each process leads a session.
  void add(const Process& process) const {
    const std::string pid = std::to_string(process.pid);
    std::filesystem::create_directories(dir / pid);
    write(pid + "/stat", pid + " (" + process.name + ") " + process.state + " " +
                             std::to_string(process.parent) + " " + pid + " " + pid +
                             " 0 -1 4194304 1 0 0 0 250 50 0 0 20 0 1 0 9 8192 300 0\n");
    write(pid + "/environ", process.environment);
    write(pid + "/cmdline", process.name + "\0"s);
  }
  LocalJobs jobs() const { return find_local_jobs(dir.string()); }
};

TEST_CASE_METHOD(LocalJobsTest, "local jobs: a worker and its rank", "[unit][musterctl]") {
  add({.pid = 12,
       .parent = 10,
       .name = "train",
       .environment = "PATH=/bin\0MUSTER_JOB=x\0RANK=3\0LOCAL_RANK=1\0TORCHELASTIC_RUN_ID=job\0"s});
  const LocalJobs found = jobs();
  REQUIRE(found.jobs.size() == 1);
  REQUIRE(found.jobs[0].workers.size() == 1);
  CHECK(found.jobs[0].workers[0].rank == 3);
  CHECK(found.jobs[0].run_id == "job");
  CHECK(found.unreadable == 0);
}

TEST_CASE_METHOD(LocalJobsTest, "local jobs: a worker that has overwritten its environment",
                 "[unit][musterctl]") {
  for (const std::string& left : {""s, std::string(300, '\0'), "lr=1 layers=3\0\0\0"s}) {
    add({.pid = 12, .parent = 10, .name = "title", .environment = left});
    const LocalJobs found = jobs();
    CHECK(found.unreadable == 0);
    REQUIRE(found.jobs.size() == 1);
    REQUIRE(found.jobs[0].workers.size() == 1);
    CHECK(found.jobs[0].workers[0].pid == 12);
    CHECK_FALSE(found.jobs[0].workers[0].rank);
    CHECK_THAT(local_jobs_text(found), Contains("\n  -     -      12   1 "));
  }
}

TEST_CASE_METHOD(LocalJobsTest, "local jobs: a program that the shim runs is no worker",
                 "[unit][musterctl]") {
  add({.pid = 12, .parent = 10, .name = "py-spy", .environment = "PATH=/bin\0"s});
  const LocalJobs found = jobs();
  REQUIRE(found.jobs.size() == 1);
  CHECK(found.jobs[0].workers.empty());
}

TEST_CASE_METHOD(LocalJobsTest, "local jobs: the zygote is no worker, and its memory is shown",
                 "[unit][musterctl]") {
  add({.pid = 12, .parent = 10, .name = "muster-zygote", .environment = "PATH=/bin\0"s});
  LocalJobs found = jobs();
  REQUIRE(found.jobs.size() == 1);
  CHECK(found.jobs[0].workers.empty());
  REQUIRE(found.jobs[0].zygote);
  CHECK_FALSE(found.jobs[0].zygote->shares);
  CHECK_THAT(local_jobs_text(found), Contains("\n  zygote 12  memory 1 MiB\n"));
  write("12/smaps_rollup",
        "00400000-7ffc [rollup]\nRss:  1200 kB\nPss:  700 kB\nPss_Dirty:  5 kB\n"
        "Private_Clean:  100 kB\nPrivate_Dirty:  924 kB\n");
  found = jobs();
  CHECK_THAT(local_jobs_text(found), Contains("own 1 MiB, shared 0 MiB, its proportional share 1"));
  const auto json = nlohmann::json::parse(local_jobs_json(found))["jobs"][0];
  CHECK(json["zygote"] == nlohmann::json{{"pid", 12},
                                         {"resident_bytes", 300 * ::sysconf(_SC_PAGESIZE)},
                                         {"own_bytes", 1024 * 1024},
                                         {"proportional_bytes", 700 * 1024}});
}

TEST_CASE_METHOD(LocalJobsTest, "local jobs: a worker that has just ended hides no job",
                 "[unit][musterctl]") {
  add({.pid = 12, .parent = 10, .name = "train"});
  std::filesystem::remove(dir / "12/environ");
  const LocalJobs found = jobs();
  CHECK(found.unreadable == 0);
  CHECK(found.jobs.size() == 1);
}

}  // namespace muster::ctl::testing
