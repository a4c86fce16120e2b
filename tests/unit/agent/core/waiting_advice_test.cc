// What a node that waits tells people about the nodes that are missing.

#include "agent/core/waiting_advice.h"

#include <string>

#include <catch2/catch.hpp>

namespace muster::testing {
namespace {

using Catch::Contains;

AgentOptions meeting_at(RendezvousBackend backend, const std::string& host) {
  AgentOptions options;
  options.run_id = "job7";
  options.rendezvous.backend = backend;
  options.rendezvous.host = host;
  options.rendezvous.port = 29400;
  options.rendezvous.endpoint = host + ":29400";
  return options;
}

TEST_CASE("waiting advice: what the other nodes must run", "[unit][agent]") {
  CHECK(waiting_advice(meeting_at(RendezvousBackend::C10d, "node0")) ==
        "each missing node runs the same command with --rdzv-endpoint=node0:29400 and "
        "--rdzv-id=job7");
  CHECK(waiting_advice(meeting_at(RendezvousBackend::Static, "node0")) ==
        "each missing node runs the same command with its own --node-rank, --master-addr=node0 and "
        "--master-port=29400");
}

TEST_CASE("waiting advice: an address that means each machine itself is named", "[unit][agent]") {
  for (const char* host : {"localhost", "a.localhost", "ip6-localhost", "127.0.1.1", "::1"}) {
    INFO(host);
    CHECK(is_own_machine(host));
    for (const auto backend : {RendezvousBackend::C10d, RendezvousBackend::Static})
      CHECK_THAT(waiting_advice(meeting_at(backend, host)),
                 Contains(std::string("; ") + host +
                          " means this machine alone, so no other machine can come"));
  }
  for (const char* host : {"node0", "12.7.0.1", "localhost.example.org", "::2"})
    CHECK_FALSE(is_own_machine(host));
  CHECK_THAT(waiting_advice(meeting_at(RendezvousBackend::Etcd, "localhost")),
             !Contains("means this machine alone"));
}

}  // namespace
}  // namespace muster::testing
