#include "musterctl/interfaces.h"

#include <catch2/catch.hpp>

namespace muster::ctl::testing {

const Interfaces kSome = {{"eth0", {"fe80::1", "10.0.0.1"}},
                          {"eth1", {"fd00::1", "10.1.0.1"}},
                          {"ib0", {"fe80::2", "fd00::2"}},
                          {"down0", {"fe80::3"}},
                          {"lo", {"127.0.0.1"}}};

TEST_CASE("interfaces: Gloo's variable chooses by whole names", "[unit][musterctl]") {
  const auto chosen = chosen_interface({{"GLOO_SOCKET_IFNAME", "eth,eth1"}}, kSome);
  REQUIRE(chosen);
  CHECK(chosen->name == "eth1");
  CHECK(chosen->address == "10.1.0.1");
  CHECK(chosen->variable == "GLOO_SOCKET_IFNAME=eth,eth1");
}

TEST_CASE("interfaces: NCCL's variable chooses by the beginnings of names", "[unit][musterctl]") {
  CHECK(chosen_interface({{"NCCL_SOCKET_IFNAME", "eth"}}, kSome)->name == "eth0");
  CHECK(chosen_interface({{"NCCL_SOCKET_IFNAME", "=eth1"}}, kSome)->name == "eth1");
  CHECK(chosen_interface({{"NCCL_SOCKET_IFNAME", "ib0:1234"}}, kSome)->address == "fd00::2");
  CHECK_FALSE(chosen_interface({{"NCCL_SOCKET_IFNAME", "=eth"}}, kSome));
  CHECK_FALSE(chosen_interface({{"NCCL_SOCKET_IFNAME", "^lo"}}, kSome));
}

TEST_CASE("interfaces: Gloo's variable comes before NCCL's", "[unit][musterctl]") {
  CHECK(chosen_interface({{"GLOO_SOCKET_IFNAME", "eth1"}, {"NCCL_SOCKET_IFNAME", "ib0"}}, kSome)
            ->name == "eth1");
  CHECK(chosen_interface({{"GLOO_SOCKET_IFNAME", "no0"}, {"NCCL_SOCKET_IFNAME", "ib0"}}, kSome)
            ->name == "ib0");
}

TEST_CASE("interfaces: an interface without an address that others reach is not chosen",
          "[unit][musterctl]") {
  CHECK_FALSE(chosen_interface({{"GLOO_SOCKET_IFNAME", "down0"}}, kSome));
  CHECK_FALSE(chosen_interface({{"GLOO_SOCKET_IFNAME", ","}}, kSome));
  CHECK_FALSE(chosen_interface({}, kSome));
}

TEST_CASE("interfaces: the interface with an address is found", "[unit][musterctl]") {
  CHECK(interface_of("10.1.0.1", kSome) == "eth1");
  CHECK(interface_of("10.9.9.9", kSome).empty());
}

}  // namespace muster::ctl::testing
