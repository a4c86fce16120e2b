// Lists of hosts as schedulers write them.

#include "launcher/clusters/hostlist.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace muster::testing {
namespace {

using Catch::Contains;
using Hosts = std::vector<std::string>;

Hosts expanded(std::string_view text) {
  auto hosts = expand_hostlist(text, "SLURM_JOB_NODELIST");
  if (!hosts) FAIL(hosts.error().message);
  return *hosts;
}

std::string refused(std::string_view text) {
  const auto hosts = expand_hostlist(text, "SLURM_JOB_NODELIST");
  REQUIRE_FALSE(hosts.has_value());
  return hosts.error().message;
}

TEST_CASE("hostlist: Slurm's compressed lists", "[unit][launcher]") {
  CHECK(expanded("node1") == Hosts{"node1"});
  CHECK(expanded("gnode[10,20,25,37]") == Hosts{"gnode10", "gnode20", "gnode25", "gnode37"});
  CHECK(expanded("gpu[01-03,07],login") == Hosts{"gpu01", "gpu02", "gpu03", "gpu07", "login"});
  CHECK(expanded("n[008-011]") == Hosts{"n008", "n009", "n010", "n011"});
  CHECK(expanded("n[9-10]-ib") == Hosts{"n9-ib", "n10-ib"});
  CHECK(expanded("rack[1-2]n[1-2]") == Hosts{"rack1n1", "rack1n2", "rack2n1", "rack2n2"});
  CHECK(expanded("a-b.c.org,x[5]") == Hosts{"a-b.c.org", "x5"});
}

TEST_CASE("hostlist: a list that is wrong is named with its variable", "[unit][launcher]") {
  for (const char* text : {"", ",", "a,,b", "a[", "a[1-", "a[]", "a[x]", "a[3-2]", "a[1-2-3]",
                           "a[1--2]", "a[-1]", "a[1,]", "[1-2],"}) {
    INFO(text);
    CHECK_THAT(refused(text), Contains("SLURM_JOB_NODELIST is '"));
  }
  CHECK_THAT(refused("a[1-"), Contains("a bracket is not closed"));
  CHECK_THAT(refused("a[3-2]"), Contains("'3-2' is no range of numbers"));
}

TEST_CASE("hostlist: a list stands for a bounded number of hosts", "[unit][launcher]") {
  CHECK(expanded("a[1-65536]").size() == kMaxHosts);
  CHECK_THAT(refused("a[1-65537]"), Contains("no range"));
  CHECK_THAT(refused("a[0-999999999999999999]"), Contains("no range"));
  CHECK_THAT(refused("a[0-99999999999999999999]"), Contains("no range"));
  CHECK_THAT(refused("a[1-256]b[1-257]"), Contains("too many"));
  CHECK_THAT(refused("a[1-65536],b"), Contains("too many"));
  CHECK_THAT(refused(std::string(kMaxHostListBytes + 1, 'a')), Contains("too long"));
  CHECK_THAT(refused(std::string(256, 'a')), Contains("too long"));
}

TEST_CASE("hostlist: the words of a file, each once", "[unit][launcher]") {
  CHECK(*distinct_hosts("a.org\na.org\r\nb.org\n", "PBS_NODEFILE") == Hosts{"a.org", "b.org"});
  CHECK(distinct_hosts(" \n", "PBS_NODEFILE")->empty());
  CHECK_THAT(distinct_hosts(std::string(300, 'a'), "PBS_NODEFILE").error().message,
             Contains("PBS_NODEFILE: ") && Contains("too long"));
  std::string many;
  for (std::size_t i = 0; i <= kMaxHosts; ++i)
    many += "h" + std::to_string(i) + "\n";
  CHECK_THAT(distinct_hosts(many, "PBS_NODEFILE").error().message, Contains("more than 65536"));
  CHECK_THAT(
      distinct_hosts(std::string(kMaxHostListBytes + 1, ' '), "PBS_NODEFILE").error().message,
      Contains("longer than"));
}

}  // namespace
}  // namespace muster::testing
