// Messages of one client that would cost the host work or memory for every node of a run.

#include "rendezvous/core/limits.h"
#include "tests/unit/rendezvous/run_service_fixture.h"

namespace muster::testing {
namespace {

std::string filled_with(const std::string& piece, std::size_t bytes) {
  std::string text;
  while (text.size() + piece.size() <= bytes)
    text += piece;
  return text;
}

}  // namespace

TEST_CASE_METHOD(RunServiceTest, "runs: a long reason is cut before all nodes are told",
                 "[unit][rendezvous]") {
  two_in_a_round();
  const std::string euros = filled_with("\xe2\x82\xac", kMaxNativeTextBytes);
  SECTION("of a failure, between two characters") {
    tell(2, WorkersFailed{{}, 0, euros});
    const auto told = messages<RestartRound>();
    REQUIRE(told.size() == 2);
    CHECK(told.at(1).what == filled_with("\xe2\x82\xac", kMaxSharedReasonBytes - 3) + "...");
  }
  SECTION("of a restart") {
    tell(2, RestartRequested{{}, std::string(kMaxNativeTextBytes, '\x01'), 0});
    CHECK(messages<RestartRound>().at(1).what.size() == kMaxSharedReasonBytes);
  }
  SECTION("of the end") {
    tell(2, NodeFinished{{}, 0, false, euros});
    const auto told = messages<RunEnded>();
    REQUIRE(told.size() == 2);
    CHECK(told.at(1).why.size() < kMaxSharedReasonBytes + 100);
    CHECK_THAT(told.at(1).why, Catch::Contains("\xe2\x82\xac..."));
  }
  SECTION("but one that is short enough stays whole") {
    const std::string what(kMaxSharedReasonBytes, 'x');
    tell(2, WorkersFailed{{}, 0, what});
    CHECK(messages<RestartRound>().at(1).what == what);
  }
}

}  // namespace muster::testing
