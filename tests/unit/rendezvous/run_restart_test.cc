// A host with a disk that is started again: what it knows, and how long it waits for its nodes.

#include "tests/unit/rendezvous/run_recording_fixture.h"

namespace muster::testing {
namespace {

TEST_CASE_METHOD(RecordingTest,
                 "recording: whatever generation a node names, the records can be read again",
                 "[unit][rendezvous]") {
  // The second run begins above the generations of the first one, and records them.
  for (int run = 0; run < 2; ++run) {
    for (const std::uint32_t client : {1, 2}) {
      hello_resumes(client);
      NodeJoined joined = joining(client);
      joined.instance += " of run " + std::to_string(run);
      joined.generation = run == 0 ? kMaxGeneration : 0;
      tell(client, joined);
    }
    end_turn();
    tell(1, StoreReady{{}, 0, "10.0.0.1", 29500});
    end_turn();
    REQUIRE(state.load().runs.size() == 1);  // load() decodes the records.
    for (const std::uint32_t client : {1, 2})
      tell(client, NodeFinished{{}, 0, true, {}});
    for (const std::uint32_t client : {1, 2})
      service->gone({client}, at());
    end_turn();
  }
  CHECK(state.load().ended.size() == 2);
}

}  // namespace
}  // namespace muster::testing
