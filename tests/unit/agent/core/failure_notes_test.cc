#include "agent/core/failure_notes.h"

#include <csignal>

#include <catch2/catch.hpp>

#include "agent/core/exit_report.h"

namespace muster {
namespace {
using Catch::Contains;

struct FailureNotesTest {
  ExplainedEnd& end(int rank, int status, std::int64_t died_ms) {
    ExplainedEnd one;
    one.rank = {rank};
    one.local_rank = {rank};
    one.pid = 70 + rank;
    one.exit.status = status;
    one.order = static_cast<int>(ends.size());
    one.died_ms = 1'800'000'000'000 + died_ms;
    ends.push_back(one);
    return ends.back();
  }
  std::string note() const { return early_ends_note({ends.begin(), ends.end()}, ends.back()); }
  std::vector<ExplainedEnd> ends;
};

TEST_CASE_METHOD(FailureNotesTest, "failure notes: a rank that had ended with 0", "[unit][agent]") {
  SECTION("one") {
    end(5, 0, 0);
    end(2, 7, 4200);
    CHECK(note() == "rank 5 had ended with 0 before, 4.2 s earlier: did this one wait for it?");
    CHECK_THAT(ExitReport({}, ends).text(), Contains("rank 5 had ended with 0"));
    CHECK_THAT(ExitReport({}, ends).json(), Contains("rank 5 had ended with 0"));
  }
  SECTION("several") {
    end(3, 0, 2000);
    end(1, 0, 1000);
    end(2, 7, 4000);
    CHECK_THAT(note(), Contains("ranks 1, 3 had ended with 0 before, the first of them 3.0 s"));
  }
  SECTION("just before, as at the end of a training") {
    end(5, 0, 0);
    end(2, 7, 300);
    CHECK(note().empty());
  }
  SECTION("as it was stopped") {
    end(5, 0, 0).signalled_ms = 1'800'000'000'000;
    end(2, 7, 4200);
    CHECK(note().empty());
  }
}

TEST_CASE("failure notes: a full /dev/shm, and a bus error", "[unit][agent]") {
  const WorkerExit bus{.killed = true, .status = SIGBUS};
  constexpr std::int64_t kMiB = 1 << 20;
  CHECK_THAT(shared_memory_note({0, 8 * kMiB}, bus), Contains("0.0 MiB of 8.0 MiB are free"));
  CHECK_THAT(shared_memory_note({6 * kMiB, 8 * kMiB}, bus), Contains("bus error"));
  CHECK_THAT(shared_memory_note({0, 8 * kMiB}, {.status = 1}), Contains("/dev/shm is full"));
  CHECK(shared_memory_note({6 * kMiB, 8 * kMiB}, {.status = 1}).empty());
  CHECK(shared_memory_note({}, bus).empty());
}

TEST_CASE("failure notes: the OOM killer has killed another process", "[unit][agent]") {
  CHECK(oom_child_note({.cgroup_dir = "/sys/fs/cgroup/job"}).empty());
  const std::string note = oom_child_note({.cgroup_dir = "/sys/fs/cgroup/job",
                                           .kills = 2,
                                           .limit_bytes = std::int64_t{300} << 20,
                                           .kernel_lines = {"Killed process 9 (python3)"}});
  CHECK_THAT(note, Contains("has killed 2 processes of /sys/fs/cgroup/job"));
  CHECK_THAT(note, Contains("300.0 MiB"));
  CHECK_THAT(note, Contains("Killed process 9 (python3)"));
}

}  // namespace
}  // namespace muster
