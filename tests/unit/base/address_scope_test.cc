#include "base/address_scope.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

TEST_CASE("address scope: is taken off and put on", "[unit][rendezvous]") {
  CHECK(scope_of("fe80::1%eth0") == "eth0");
  CHECK(scope_of("fe80::1").empty());
  CHECK(scope_of("host%1").empty());
  CHECK(without_scope("fe80::1%eth0") == "fe80::1");
  CHECK(without_scope("10.0.0.1") == "10.0.0.1");
  CHECK(without_scope("host%1") == "host%1");
  CHECK(with_scope("fe80::1", "ib0") == "fe80::1%ib0");
  CHECK(with_scope("FEBF::2%eth0", "7") == "FEBF::2%7");
  CHECK(with_scope("fe80::1%eth0", "") == "fe80::1%eth0");
}

TEST_CASE("address scope: only link-local addresses have one", "[unit][rendezvous]") {
  for (const char* other : {"fd00::1", "fec0::1", "fe8::1", "2001:db8::1", "::1", "10.0.0.1",
                            "fe80", "fe80.example", "", "localhost"}) {
    INFO(other);
    CHECK_FALSE(is_link_local(other));
    CHECK(with_scope(other, "eth0") == other);
  }
  for (const char* local : {"fe80::1", "fe9a::1", "feab:1::", "febf::1", "FE80::1"})
    CHECK(is_link_local(local));
}

}  // namespace
}  // namespace muster
