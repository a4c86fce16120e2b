#include "rendezvous/state/etcd/etcd_address.h"

#include <catch2/catch.hpp>

namespace muster::testing {
namespace {

std::string error_of(std::string_view text) {
  const auto parsed = parse_etcd_address(text);
  return parsed ? std::string("no error") : parsed.error().reason;
}

TEST_CASE("etcd address: members in order, and a prefix", "[unit][etcd]") {
  const auto parsed = parse_etcd_address("etcd://h1:2379,10.0.0.2,[::1]:4001/a/b/");
  REQUIRE(parsed.has_value());
  CHECK(parsed->members ==
        std::vector<EtcdMember>{{"h1", 2379}, {"10.0.0.2", 2379}, {"::1", 4001}});
  CHECK(parsed->prefix == "/a/b");
  CHECK(to_text(parsed->members[2]) == "[::1]:4001");
  CHECK(parse_etcd_address("etcd://h")->prefix == "/muster");
  CHECK(parse_etcd_address("etcd://h/")->prefix == "/muster");
}

TEST_CASE("etcd address: a user", "[unit][etcd]") {
  const auto address = parse_etcd_address("etcd://mus.ter@a,b:1/p");
  REQUIRE(address.has_value());
  CHECK(address->login.user == "mus.ter");
  CHECK(address->login.password.empty());
  CHECK(address->members == std::vector<EtcdMember>{{"a", 2379}, {"b", 1}});
}

TEST_CASE("etcd address: a wrong one is refused, and the error tells what to write",
          "[unit][etcd]") {
  for (const char* text :
       {"h:2379", "http://h:2379", "etcd://", "etcd:///p", "etcd://h:0", "etcd://h:65536",
        "etcd://h:x", "etcd://h,,i", "etcd://h/p q", "etcd://::1/p", "etcd://[x]:1", "etcd://.:1"})
    CHECK_THAT(error_of(text), Catch::Contains("write etcd://HOST"));
  CHECK_THAT(error_of("etcds://h:2379/p"), Catch::Contains("TLS") && Catch::Contains("--state-ca"));
  const std::string secret = error_of("etcd://user:secret@h/p");
  CHECK_THAT(secret, Catch::Contains("password"));
  CHECK_THAT(secret, !Catch::Contains("secret@"));
  CHECK_THAT(error_of("etcd://@h/p"), Catch::Contains("user of etcd"));
  CHECK_THAT(error_of("etcd://a b@h/p"), Catch::Contains("user of etcd"));
  std::string many = "etcd://h";
  for (std::size_t i = 1; i < kMaxEtcdMembers; ++i)
    many += ",h";
  CHECK(error_of(many) == "no error");
  CHECK_THAT(error_of(many + ",h"), Catch::Contains("more than 16 members"));
  CHECK(error_of("etcd://h/" + std::string(kMaxEtcdPrefixBytes - 1, 'p')) == "no error");
  CHECK_THAT(error_of("etcd://h/" + std::string(kMaxEtcdPrefixBytes, 'p')),
             Catch::Contains("more than 256"));
}

}  // namespace
}  // namespace muster::testing
