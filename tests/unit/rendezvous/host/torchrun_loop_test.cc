// torchrun agents that a service manager starts again and again, at the c10d door.

#include <catch2/catch.hpp>

#include "rendezvous/host/rendezvous.h"
#include "tests/support/torch_model.h"

namespace muster {
namespace {

using namespace std::chrono_literals;
using testing::TorchModel;
using testing::TorchSettings;
using Action = TorchModel::Action;

constexpr TorchSettings kNodes{.min_nodes = 1, .max_nodes = 3};

struct LoopTest {
  LoopTest() {
    REQUIRE(does(good, 1, Action::AddToParticipants) != ProposalVerdict::Refused);
    pass(31s);
    REQUIRE(shown().complete);
  }
  void pass(Duration time) {
    now += time;
    does(good, 1, Action::KeepAlive);
    rendezvous.step(RendezvousTimePassed{}, now);
  }
  /// The next agent at `addr` goes onto the wait list, and is gone `after` that.
  ProposalVerdict comes_and_goes(const std::string& addr, Duration after = 2s) {
    TorchModel node({addr, ++pid, 0}, kNodes);
    const auto client = static_cast<std::uint32_t>(pid);
    const ProposalVerdict verdict = does(node, client, Action::AddToWaitList);
    why = result.refusal;
    for (Duration passed{}; passed < after; passed += 1s)
      pass(1s);
    rendezvous.step(ConnectionLost{{client}}, now);
    pass(1s);
    return verdict;
  }
  const RendezvousState& shown() {
    return rendezvous.render(now, {1'790'000'000'000'000 + (now.time_since_epoch() / 1us)});
  }
  ProposalVerdict does(TorchModel& node, std::uint32_t client, Action action) {
    const RendezvousState seen = shown();
    const WallTime wall{1'790'000'000'000'000 + (now.time_since_epoch() / 1us)};
    node.state = seen;
    node.apply(action, wall);
    result = rendezvous.propose({{client}, seen, node.state}, now, wall);
    return result.verdict;
  }
  Rendezvous rendezvous{RendezvousSetup{.run = RunSettings{.min_nodes = 1, .max_nodes = 3}}};
  Instant now{};
  ProposalResult result;
  TorchModel good{{"good", 7, 0}, kNodes};
  std::int64_t pid = 100;
  std::string why;
};

TEST_CASE_METHOD(LoopTest,
                 "c10d door: agents that are started again and again are refused for a while",
                 "[unit][rendezvous]") {
  for (int losses = 0; losses < 5; ++losses)
    CHECK(comes_and_goes("bad") != ProposalVerdict::Refused);
  CHECK(comes_and_goes("bad") == ProposalVerdict::Refused);
  CHECK_THAT(why, Catch::Contains("bad_106_0 were gone soon after they had come, 5 times"));
  CHECK(shown().wait_list.empty());
  CHECK(comes_and_goes("other") != ProposalVerdict::Refused);
  pass(10s);
  CHECK(comes_and_goes("bad") != ProposalVerdict::Refused);
  CHECK(comes_and_goes("bad") == ProposalVerdict::Refused);
  pass(10s);
  CHECK(comes_and_goes("bad") == ProposalVerdict::Refused);  // The time has doubled.
}

TEST_CASE_METHOD(LoopTest, "c10d door: agents that stay for long are let in each time",
                 "[unit][rendezvous]") {
  for (int losses = 0; losses < 8; ++losses)
    CHECK(comes_and_goes("slow", 301s) != ProposalVerdict::Refused);
}

}  // namespace
}  // namespace muster
