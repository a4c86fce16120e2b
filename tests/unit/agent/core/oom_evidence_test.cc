#include "agent/core/oom_evidence.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

using Catch::Contains;

constexpr std::string_view kRecord =
    "3,1063,5140900123,-;Memory cgroup out of memory: Killed process 4711 (python) "
    "total-vm:221368kB, anon-rss:64128kB\n SUBSYSTEM=memory\n";

TEST_CASE("oom: the counter is read from both versions' files", "[unit][oom]") {
  CHECK(oom_kill_count("low 0\nhigh 3\nmax 9\noom 4\noom_kill 2\noom_group_kill 1\n") == 2);
  CHECK(oom_kill_count("oom_kill_disable 0\nunder_oom 0\noom_kill 12\n") == 12);
  CHECK_FALSE(oom_kill_count("oom_kill_disable 0\nunder_oom 0\n"));  // Linux before 4.13.
  CHECK_FALSE(oom_kill_count("oom_kill\n"));
}

TEST_CASE("oom: a record of the kernel's log", "[unit][oom]") {
  const auto message = kernel_message(kRecord);
  REQUIRE(message);
  CHECK(message->time_us == 5140900123);
  CHECK_THAT(std::string(message->text), Contains("anon-rss:64128kB") && !Contains("SUBSYSTEM"));
  CHECK(oom_victim(message->text) == 4711);
  CHECK(oom_victim("Killed process 12 (sh), UID 0, total-vm:1kB") == 12);
  CHECK_FALSE(oom_victim("oom-kill:constraint=CONSTRAINT_MEMCG,task=python,pid=4711"));
  CHECK_FALSE(oom_victim("Killed process x"));
  CHECK_FALSE(kernel_message("no record"));
  CHECK_FALSE(kernel_message("1,2,x,-;text"));
}

TEST_CASE("oom: the kernel's line about this very process is the best evidence", "[unit][oom]") {
  const OomFacts facts{.cgroup_dir = "/c",
                       .kills = 1,
                       .limit_bytes = {},
                       .kernel_lines = {"Killed process 7 (a)", "Killed process 8 (b)"}};
  CHECK_THAT(oom_evidence(facts, 8, 2), Contains("\"Killed process 8 (b)\""));
}

TEST_CASE("oom: a counter below the number of killed workers makes the evidence uncertain",
          "[unit][oom]") {
  const OomFacts facts{.cgroup_dir = "/c", .kills = 1, .limit_bytes = 64 << 20, .kernel_lines = {}};
  CHECK(oom_evidence(facts, 8, 1) == "it killed 1 process of /c, which has a limit of 64 MiB");
  CHECK_THAT(oom_evidence(facts, 8, 2), Contains("perhaps this one"));
}

TEST_CASE("oom: a kill that was neither counted nor logged gives no evidence", "[unit][oom]") {
  CHECK(oom_evidence({}, 8, 1).empty());
  CHECK(oom_evidence({.cgroup_dir = "/c", .kernel_lines = {"Killed process 9 (x)"}}, 8, 1).empty());
}

}  // namespace
}  // namespace muster
