#include "rendezvous/access/tls_allow.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "rendezvous/rounds/limits.h"

namespace muster {
namespace {

using Names = std::vector<std::string>;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

TlsAllow read(const Names& texts) {
  const auto allow = parse_tls_allow(texts);
  INFO((allow ? "" : allow.error().reason));
  REQUIRE(allow.has_value());
  return *allow;
}

bool admits(const Names& texts, const std::string& run, const Names& names) {
  return read(texts).scope_of(names).admits(run);
}

std::string refusal(const Names& texts) {
  const auto allow = parse_tls_allow(texts);
  REQUIRE_FALSE(allow.has_value());
  return allow.error().reason;
}

TEST_CASE("tls allow: without a rule every certificate may join all runs", "[unit][rendezvous]") {
  CHECK(admits({}, "job", {}));
  CHECK(admits({}, "job", {"node1"}));
  CHECK(RunScope().admits("job"));
}

TEST_CASE("tls allow: a rule lets its names into its run, and nobody else into anything",
          "[unit][rendezvous]") {
  const Names rules{"job=node1,node2"};
  CHECK(admits(rules, "job", {"node1"}));
  CHECK(admits(rules, "job", {"other", "node2"}));
  CHECK_FALSE(admits(rules, "job", {"node3"}));
  CHECK_FALSE(admits(rules, "job", {}));
  CHECK_FALSE(admits(rules, "job", {"node"}));
  CHECK_FALSE(admits(rules, "job", {"node11"}));
  CHECK_FALSE(admits(rules, "job2", {"node1"}));
  CHECK_FALSE(admits(rules, "jo", {"node1"}));
  CHECK_FALSE(admits(rules, "", {"node1"}));
}

TEST_CASE("tls allow: a star at the end stands for the rest of a run id", "[unit][rendezvous]") {
  const Names rules{"team-a-*=node1", "*=ops"};
  CHECK(admits(rules, "team-a-", {"node1"}));
  CHECK(admits(rules, "team-a-7", {"node1"}));
  CHECK_FALSE(admits(rules, "team-a", {"node1"}));
  CHECK_FALSE(admits(rules, "team-b-7", {"node1"}));
  CHECK(admits(rules, "team-b-7", {"ops"}));
  // A star in another position is a normal character.
  CHECK(admits({"a*b=node1"}, "a*b", {"node1"}));
  CHECK_FALSE(admits({"a*b=node1"}, "axb", {"node1"}));
}

TEST_CASE("tls allow: the rules of a run add up", "[unit][rendezvous]") {
  const Names rules{"job=node1", "job=node2", "jo*=node3"};
  for (const char* name : {"node1", "node2", "node3"})
    CHECK(admits(rules, "job", {name}));
  CHECK_FALSE(admits(rules, "job", {"node4"}));
  CHECK(read(rules).scope_of(Names{"node1", "node3"}) ==
        RunScope{.all = false, .patterns = {"job", "jo*"}});
}

TEST_CASE("tls allow: names are compared without regard to case", "[unit][rendezvous]") {
  CHECK(to_dns_name("Node1.Example.ORG") == "node1.example.org");
  CHECK(admits({"job=NODE1.example.org"}, "job", {*to_dns_name("node1.EXAMPLE.org")}));
  CHECK_FALSE(admits({"job=node1"}, "JOB", {"node1"}));  // Run ids are case-sensitive.
}

TEST_CASE("tls allow: a star in a rule is one label or any name, a star in a certificate is a star",
          "[unit][rendezvous]") {
  const Names rules{"job=*.team.org"};
  CHECK(admits(rules, "job", {"node1.team.org"}));
  CHECK(admits(rules, "job", {"*.team.org"}));
  CHECK_FALSE(admits(rules, "job", {"a.b.team.org"}));
  CHECK_FALSE(admits(rules, "job", {"team.org"}));
  CHECK_FALSE(admits(rules, "job", {"evilteam.org"}));
  // A certificate with a wildcard name does not count as a certificate of each matching name.
  CHECK_FALSE(admits({"job=node1.team.org"}, "job", {"*.team.org"}));
  CHECK_FALSE(admits({"job=node1.team.org"}, "job", {"*"}));
  CHECK(admits({"scratch=*"}, "scratch", {}));
  CHECK(admits({"scratch=*"}, "scratch", {"anybody"}));
  CHECK_FALSE(admits({"scratch=*"}, "job", {"anybody"}));
}

TEST_CASE("tls allow: a text that is no DNS name is refused", "[unit][rendezvous]") {
  for (const std::string& text :
       {std::string(), std::string("a b"), std::string("node1\0.evil.org", 15),
        std::string("n\xc3\xb6"), std::string("a\n"), std::string("a,b"), std::string("a=b"),
        std::string("\"a"), std::string(kMaxDnsNameBytes + 1, 'a')})
    CHECK_FALSE(to_dns_name(text).has_value());
  CHECK(to_dns_name(std::string(kMaxDnsNameBytes, 'a')).has_value());
}

TEST_CASE("tls allow: a run id may have an equals sign", "[unit][rendezvous]") {
  CHECK(admits({"lr=0.1,b=2=node1"}, "lr=0.1,b=2", {"node1"}));
}

TEST_CASE("tls allow: the names of a host of one run", "[unit][rendezvous]") {
  const auto allow = parse_tls_allow_names("node1,*.b.org");
  REQUIRE(allow.has_value());
  CHECK(allow->scope_of(Names{"node1"}).admits("job"));
  CHECK(allow->scope_of(Names{"x.b.org"}).admits("job"));
  CHECK_FALSE(allow->scope_of(Names{"node2"}).admits("job"));
  REQUIRE_FALSE(parse_tls_allow_names("").has_value());
  CHECK_THAT(parse_tls_allow_names("node1,").error().reason, StartsWith("'' is no DNS name"));
}

TEST_CASE("tls allow: an error names the rule and the remedy", "[unit][rendezvous]") {
  CHECK(refusal({"ok=node1", "node1"}) ==
        "'node1': a rule is RUN=NAME[,NAME...], as in 'team-a-*=node1.example.org'");
  CHECK_THAT(refusal({"=node1"}), Contains("the run id in front of '=' is missing"));
  for (const char* each : {"", "node1,", ",node1", "node 1", "*x", "*.", "*.*.org", "a*.org",
                           "node1\n", ".org", "node1.", "**", "*.org."}) {
    const std::string name = each;
    INFO(name);
    CHECK_THAT(refusal({"job=" + name}), Contains("is no DNS name"));
  }
  CHECK_THAT(refusal({std::string(kMaxRunIdBytes + 2, 'a') + "=node1"}),
             Contains("longer than 1024 bytes"));
  CHECK(admits({std::string(kMaxRunIdBytes, 'a') + "*=node1"}, std::string(kMaxRunIdBytes, 'a'),
               {"node1"}));
  std::string names = "job=node";
  for (std::size_t i = 0; i < kMaxTlsAllowNames; ++i)
    names += ",node" + std::to_string(i);
  CHECK_THAT(refusal({names}), Contains("more than 1000 names"));
  CHECK(refusal(Names(kMaxTlsAllowRules + 1, "job=node1")) == "there are more than 1000 rules");
}

TEST_CASE("tls allow: a refusal names the run and a few of the client's names",
          "[unit][rendezvous]") {
  CHECK(not_in_scope_text("job", Names{"node1", "team-b"}) ==
        "run job is not for this client: its certificate has the DNS names node1, team-b, and the "
        "host lets none of them into this run (--tls-allow)");
  CHECK(not_in_scope_text("job", {}) ==
        "run job is not for this client: its certificate has no DNS names, by which the host knows "
        "its clients (--tls-allow)");
  const std::string text = not_in_scope_text("job", Names(kMaxPeerNames, "n"));
  CHECK_THAT(text, Contains("n, n, n, n, n, n, n, n and 56 more, and"));
}

}  // namespace
}  // namespace muster
