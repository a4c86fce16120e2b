#include "rendezvous/server/c10d_allow.h"

#include <string>

#include <catch2/catch.hpp>

namespace muster::testing {
namespace {

using Catch::Contains;

bool lets_in(const std::string& allow, const std::string& address) {
  const auto parsed = parse_c10d_allow(allow);
  REQUIRE(parsed.has_value());
  return parsed->lists(boost::asio::ip::make_address(address));
}

TEST_CASE("c10d allow: words", "[unit][rendezvous]") {
  CHECK_FALSE(lets_in("off", "127.0.0.1"));
  CHECK(lets_in("any", "8.8.8.8"));
  CHECK(lets_in("loopback", "127.0.0.1"));
  CHECK(lets_in("loopback", "127.8.0.1"));
  CHECK(lets_in("loopback", "::1"));
  CHECK_FALSE(lets_in("loopback", "10.0.0.1"));
  CHECK_FALSE(lets_in("members", "127.0.0.1"));
  CHECK(parse_c10d_allow("members")->members);
  CHECK_FALSE(parse_c10d_allow("10.0.0.0/8")->members);
}

TEST_CASE("c10d allow: addresses and networks", "[unit][rendezvous]") {
  CHECK(lets_in("10.0.0.0/8", "10.255.1.2"));
  CHECK_FALSE(lets_in("10.0.0.0/8", "11.0.0.1"));
  CHECK_FALSE(lets_in("10.0.0.0/8", "a00::1"));
  CHECK(lets_in("10.1.2.3/8", "10.9.9.9"));  // Host bits are ignored, as in most programs.
  CHECK(lets_in("10.0.0.7", "10.0.0.7"));
  CHECK_FALSE(lets_in("10.0.0.7", "10.0.0.8"));
  CHECK(lets_in("0.0.0.0/0", "1.2.3.4"));
  CHECK_FALSE(lets_in("0.0.0.0/0", "::1"));
  CHECK(lets_in("fd00::/8", "fd12::9"));
  CHECK_FALSE(lets_in("fd00::/8", "fe80::9"));
  CHECK(lets_in("fe80::/10", "fe80::9%1"));
  CHECK(lets_in("fd00::5", "fd00::5"));
  const auto both = parse_c10d_allow("members,192.168.0.0/16,fd00::/8,loopback");
  REQUIRE(both.has_value());
  CHECK(both->members);
  CHECK(both->loopback);
  CHECK(both->lists(boost::asio::ip::make_address("192.168.7.7")));
  CHECK_FALSE(both->any);
}

TEST_CASE("c10d allow: an error names a text that is neither word nor address",
          "[unit][rendezvous]") {
  for (const char* wrong :
       {"", "on", "Any", "any,loopback", "off,members", "10.0.0.0/33", "10.0.0/8", "members,",
        ",members", "members, loopback", "host.example", "10.0.0.0/8/8", "fd00::/129", "0x7f.1"}) {
    INFO(wrong);
    const auto parsed = parse_c10d_allow(wrong);
    REQUIRE_FALSE(parsed.has_value());
    CHECK_THAT(parsed.error().reason, Contains("no address and no network"));
  }
  std::string many = "10.0.0.0";
  for (int i = 1; i <= 64; ++i)
    many += ",10.0.0." + std::to_string(i);
  CHECK_THAT(parse_c10d_allow(many).error().reason, Contains("more than 64"));
}

TEST_CASE("c10d allow: the defaults", "[unit][rendezvous]") {
  CHECK(service_c10d_allow(false).any);
  CHECK(agent_c10d_allow(false).any);
  for (const C10dAllow& allow : {service_c10d_allow(true), agent_c10d_allow(true)}) {
    CHECK_FALSE(allow.any);
    CHECK(allow.members);
    CHECK(allow.lists(boost::asio::ip::make_address("127.0.0.1")) == allow.loopback);
    CHECK_FALSE(allow.lists(boost::asio::ip::make_address("10.0.0.1")));
  }
  CHECK(agent_c10d_allow(true).loopback);
  CHECK_FALSE(service_c10d_allow(true).loopback);
}

}  // namespace
}  // namespace muster::testing
