// The lists of --hosts and --hostfile.

#include "launcher/hosts/host_list.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace muster::testing {
namespace {

using Catch::Contains;
using JobHosts = std::vector<JobHost>;

JobHosts hosts_of(const std::string& text) {
  const auto hosts = parse_hosts(text, "--hosts");
  if (!hosts) FAIL(hosts.error().message);
  return *hosts;
}
std::string list_error_of(const std::string& text) {
  const auto hosts = parse_hosts(text, "--hosts");
  REQUIRE(hosts.has_error());
  return hosts.error().message;
}
JobHosts file_of(const std::string& text) {
  const auto hosts = parse_hostfile(text, "hosts.txt");
  if (!hosts) FAIL(hosts.error().message);
  return *hosts;
}
std::string file_error_of(const std::string& text) {
  const auto hosts = parse_hostfile(text, "hosts.txt");
  REQUIRE(hosts.has_error());
  return hosts.error().message;
}

TEST_CASE("hosts: names, addresses, users and workers", "[unit][launcher]") {
  CHECK(hosts_of("a:8,b:4") == JobHosts{{"a", 8}, {"b", 4}});
  CHECK(hosts_of("a") == JobHosts{{"a", {}}});
  CHECK(hosts_of(" a , me@b:2 ") == JobHosts{{"a", {}}, {"me@b", 2}});
  CHECK(hosts_of("10.0.0.1:8") == JobHosts{{"10.0.0.1", 8}});
  CHECK(hosts_of("fd00::1") == JobHosts{{"fd00::1", {}}});
  CHECK(hosts_of("[fd00::1]:8,me@[fe80::1%eth0]:2") ==
        JobHosts{{"fd00::1", 8}, {"me@fe80::1%eth0", 2}});
  CHECK(JobHost{"me@b", 2}.name() == "b");
  CHECK(JobHost{"b", 2}.name() == "b");
}

TEST_CASE("hosts: what is no list is named", "[unit][launcher]") {
  CHECK(list_error_of("") == "--hosts: '' is no host: the name is empty");
  CHECK_THAT(list_error_of("a,,b"), Contains("the name is empty"));
  CHECK_THAT(list_error_of("a:0"), Contains("a: '0' is no number of workers"));
  CHECK_THAT(list_error_of("a:many"), Contains("from 1 to 4096"));
  CHECK_THAT(list_error_of("a:5000"), Contains("from 1 to 4096"));
  CHECK_THAT(list_error_of("a:1,b:2,a:1"), Contains("a stands there twice"));
  CHECK_THAT(list_error_of("@a"), Contains("one of the two missing"));
  CHECK_THAT(list_error_of(std::string(400, 'a')), Contains("too long"));
  std::string many = "h0";
  for (int i = 1; i <= 1024; ++i)
    many += ",h" + std::to_string(i);
  CHECK_THAT(list_error_of(many), Contains("more than 1024 hosts"));
}

TEST_CASE("hosts: nothing in a list becomes an option of ssh or text of a shell",
          "[unit][launcher]") {
  for (const char* text : {"-oProxyCommand=x",
                           "a@-b",
                           "a;reboot",
                           "$(x)",
                           "`x`",
                           "a b",
                           "a\nb",
                           "a'b",
                           "a\"b",
                           "a|b",
                           "a&b",
                           "a>b",
                           "a<b",
                           "a\\b",
                           "a/b",
                           "a*b",
                           "a{b}",
                           "m e@b",
                           "m;e@b",
                           "a:1:2;x",
                           "\xc3\xa4"})
    CHECK_THAT(list_error_of(text), Contains("is no host"));
}

TEST_CASE("hosts: a file as DeepSpeed, Open MPI and MPICH write it", "[unit][launcher]") {
  CHECK(file_of("worker-1 slots=8\nworker-2 slots=4\n") ==
        JobHosts{{"worker-1", 8}, {"worker-2", 4}});
  CHECK(file_of("# all\r\n\r\n a:8\t\r\nb # the second\nme@c slots=2") ==
        JobHosts{{"a", 8}, {"b", {}}, {"me@c", 2}});
  CHECK(file_of("a:8 slots=8") == JobHosts{{"a", 8}});
  CHECK_THAT(file_error_of("a\nb max_slots=3\n"), Contains("hosts.txt, line 2: 'max_slots=3'"));
  CHECK_THAT(file_error_of("a:8 slots=4"), Contains("two numbers of workers"));
  CHECK_THAT(file_error_of("a slots=x"), Contains("line 1: 'x' is no number"));
  CHECK_THAT(file_error_of("a\n\n-x"), Contains("line 3"));
  CHECK_THAT(file_error_of("a\na"), Contains("line 2: a stands there twice"));
  CHECK(file_error_of("# nothing\n") == "hosts.txt names no host");
}

}  // namespace
}  // namespace muster::testing
