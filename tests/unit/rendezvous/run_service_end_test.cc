// Nodes of a run that has ended, and new nodes of the same run id.

#include "tests/unit/rendezvous/run_service_fixture.h"

namespace muster::testing {
namespace {

struct EndedRunTest : RunServiceTest {
  NodeJoined joining(std::uint32_t client, const std::string& instance) const {
    NodeJoined joined;
    joined.name = {"host" + std::to_string(client), client, 0};
    joined.instance = instance;
    joined.run = for_nodes(2);
    joined.resumes = true;
    return joined;
  }
  void hello_resumes(std::uint32_t client) {
    REQUIRE(tell(client, NativeHello{kNativeProtocolVersion, "9.9", "job", true}).close.empty());
  }
  /// Clients 1 and 2 were in a round, and have finished. Client 3 was a spare: its connection broke
  /// so long before the end.
  void end_without_the_spare(Duration before = 0s) {
    for (const std::uint32_t client : {1, 2, 3}) {
      hello_resumes(client);
      NodeJoined joined = joining(client, "instance" + std::to_string(client));
      joined.spare = client == 3;
      tell(client, joined);
    }
    REQUIRE(messages<PrepareStore>().size() == 1);
    tell(1, StoreReady{{}, 0, "10.0.0.1", 29500});
    generation = messages<RoundComplete>().at(1).generation;
    service->gone({3}, at());
    service->time_passed(at(before));
    for (const std::uint32_t client : {1, 2})
      tell(client, NodeFinished{{}, 0, true, ""});
    REQUIRE(messages<RunEnded>().size() == 2);
    for (const std::uint32_t client : {1, 2})
      service->gone({client}, at());
    take();
  }
  std::int64_t generation = 0;
};

TEST_CASE_METHOD(EndedRunTest,
                 "ended runs: a node that missed the end learns it when it comes back",
                 "[unit][rendezvous]") {
  end_without_the_spare(GENERATE(0s, 2s));
  hello_resumes(4);
  SECTION("a spare") {
    NodeJoined spare = joining(3, "instance3");
    spare.spare = true;
    tell(4, spare);
  }
  SECTION("a node of its rounds, which was told to join as if it were new") {
    NodeJoined rejoined = joining(5, "instance5");
    rejoined.generation = generation;
    tell(4, rejoined);
  }
  const auto ended = messages<RunEnded>();
  REQUIRE(ended.contains(4));
  CHECK(ended.at(4).succeeded);
  CHECK(service->rendezvous("job")->outcome());
  // That is no reason to refuse the next run.
  hello_resumes(6);
  tell(6, joining(6, "instance6"));
  CHECK_FALSE(service->rendezvous("job")->outcome());
  CHECK(service->rendezvous("job")->members() == 1);
}

TEST_CASE_METHOD(EndedRunTest, "ended runs: a new agent begins the run again, whatever its name",
                 "[unit][rendezvous]") {
  end_without_the_spare();
  hello_resumes(4);
  tell(4, joining(3, GENERATE("another", "")));
  CHECK_FALSE(service->rendezvous("job")->outcome());
  CHECK(service->rendezvous("job")->members() == 1);
  hello_resumes(5);
  // The old spare is not a node of the new run, and joins it as any other node.
  tell(5, joining(6, "instance3"));
  CHECK(service->rendezvous("job")->members() == 2);
}

}  // namespace
}  // namespace muster::testing
