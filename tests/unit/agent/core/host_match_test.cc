#include "agent/core/host_match.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

// A machine with a second interface, whose address its hostname does not resolve to.
HostFacts machine() {
  return {.hostname = "vm",
          .own_canonical = "vm.example",
          .own_addresses = {"10.0.0.1", "fd00::1"},
          .endpoint_literal = "",
          .endpoint_addresses = {},
          .interface_addresses = {"127.0.0.1", "10.0.0.1", "192.0.2.2"}};
}

TEST_CASE("host match: the names that torchrun takes for this machine", "[unit][agent]") {
  HostFacts facts = machine();
  CHECK(match_host("localhost", facts) == HostMatch::Here);
  CHECK(match_host("vm", facts) == HostMatch::Here);
  CHECK(match_host("vm.example", facts) == HostMatch::Here);
  CHECK(match_host("other", facts) == HostMatch::Elsewhere);
  CHECK(match_host("", facts) == HostMatch::Elsewhere);
  facts.endpoint_addresses = {"10.9.9.9", "fd00::1"};
  CHECK(match_host("alias", facts) == HostMatch::Here);
}

TEST_CASE("host match: addresses", "[unit][agent]") {
  HostFacts facts = machine();
  facts.endpoint_literal = "10.0.0.1";
  CHECK(match_host("10.0.0.1", facts) == HostMatch::Here);
  facts.endpoint_literal = "127.0.0.9";
  facts.endpoint_is_loopback = true;
  CHECK(match_host("127.0.0.9", facts) == HostMatch::Here);
  facts.endpoint_is_loopback = false;
  facts.endpoint_literal = "192.0.2.2";
  CHECK(match_host("192.0.2.2", facts) == HostMatch::OnInterface);
  facts.endpoint_literal = "192.0.2.3";
  CHECK(match_host("192.0.2.3", facts) == HostMatch::Elsewhere);
  facts.endpoint_literal = "";
  facts.endpoint_addresses = {"192.0.2.2"};
  CHECK(match_host("second", facts) == HostMatch::OnInterface);
}

TEST_CASE("host match: without answers of the resolver, only the machine's own hostname matches",
          "[unit][agent]") {
  HostFacts facts{.hostname = "vm"};
  CHECK(match_host("vm", facts) == HostMatch::Here);
  CHECK(match_host("other", facts) == HostMatch::Elsewhere);
}

TEST_CASE("host match: the address for others", "[unit][agent]") {
  CHECK(node_address("chosen", "head", "10.0.0.2", false) == "chosen");
  CHECK(node_address("", "head", "10.0.0.2", false) == "10.0.0.2");
  CHECK(node_address("", "head", "127.0.0.1", true) == "head");
  CHECK(node_address("", "localhost", "127.0.0.1", true) == "localhost");
}

}  // namespace
}  // namespace muster
