// Messages of one client that would cost the host work or memory for every node of a run.

#include "rendezvous/rounds/limits.h"
#include "tests/unit/rendezvous/host/run_service_fixture.h"

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

TEST_CASE_METHOD(RunServiceTest, "runs: a check for a state makes no text of it",
                 "[unit][rendezvous]") {
  const std::string none = begin(1);
  for (const std::uint32_t client : {2, 3, 4})
    begin(client);
  const std::string first = joined_by(1, none);
  REQUIRE(text(compare_set(1, none, first)) == first);
  service->read_state({9}, kKey, at());
  const std::uint64_t rendered = service->rendered_nodes();
  service->read_state({9}, kKey, at());
  CHECK(service->rendered_nodes() == rendered);  // Nothing has changed.
  text(compare_set(2, none, joined_by(2, none)));
  REQUIRE(std::holds_alternative<HeldBack>(compare_set(3, none, joined_by(3, none))));
  REQUIRE(std::holds_alternative<HeldBack>(compare_set(4, none, joined_by(4, none))));
  const std::string second = joined_by(2, first);
  REQUIRE(text(compare_set(2, first, second)) == second);
  REQUIRE_FALSE(take().empty());  // Client 3 has its turn now.

  SECTION("the client's turn passes on, as after a read") {
    service->check_state({3}, kKey, at());
    const auto effects = take();
    REQUIRE(effects.size() == 1);
    CHECK(std::get<AnswerHeld>(effects[0]).to == ConnectionId{4});
  }
  SECTION("the client belongs to the run, as after a read") {
    const std::string third = joined_by(5, second);
    REQUIRE(text(compare_set(5, second, third)) == third);
    const std::uint64_t before = service->rendered_nodes();
    service->check_state({10}, kKey, at());
    CHECK(service->rendered_nodes() == before);
    CHECK(service->is_client({10}, kKey));
    CHECK(std::string(service->read_state({10}, kKey, at()).view()) == third);
    CHECK(service->rendered_nodes() == before + 3);
  }
}

TEST_CASE_METHOD(RunServiceTest, "runs: a compare-and-set that changes nothing",
                 "[unit][rendezvous]") {
  SECTION("gets the present state if that is what it has seen") {
    const std::string none = begin(1);
    const std::string first = text(compare_set(1, none, joined_by(1, none)));
    CHECK(text(compare_set(1, first, first)) == first);
  }
  SECTION("gets the present state if it has seen an older one") {
    const std::string none = begin(1);
    const std::string first = text(compare_set(1, none, joined_by(1, none)));
    const std::string second = text(compare_set(2, first, joined_by(2, first)));
    CHECK(text(compare_set(3, first, first)) == second);
  }
  SECTION("gets no state if the host does not know the run") {
    const std::string old = joined_by(1, std::string(kNoStateText));
    CHECK(text(compare_set(2, old, old)) == kNoStateText);
  }
  SECTION("is refused if the text is no state") {
    const std::string none = begin(1);
    text(compare_set(1, none, joined_by(1, none)));
    const auto outcome = compare_set(1, "gASV!", "gASV!");
    REQUIRE(std::holds_alternative<StateRefused>(outcome));
    CHECK_THAT(std::get<StateRefused>(outcome).reason, Catch::Contains("expected state"));
  }
}

TEST_CASE_METHOD(RunServiceTest,
                 "runs: nodes of a large run learn in several turns for whom they wait",
                 "[unit][rendezvous]") {
  constexpr std::uint32_t kNodes = 2 * kMaxNotifiedNodes + 200;
  for (std::uint32_t client = 1; client <= kNodes; ++client) {
    hello(client);
    join(client, 2 * kNodes);
  }
  take();
  std::map<std::uint32_t, std::string> told;
  const auto pass_part = [&](Duration elapsed) {
    service->time_passed(at(elapsed));
    const auto part = messages<NativeWaiting>();
    for (const auto& [client, message] : part)
      told[client] = message.text;
    return part.size();
  };
  REQUIRE(service->next_deadline() == now + 1s);
  CHECK(pass_part(1s) == kMaxNotifiedNodes);
  CHECK(service->next_deadline() == now);

  SECTION("one part after the other, each node once") {
    CHECK(pass_part(0s) == kMaxNotifiedNodes);
    CHECK(pass_part(0s) == 200);
    CHECK(told.size() == kNodes);
    CHECK(service->next_deadline() > now);
    CHECK(pass_part(1s) == 0);
  }
  SECTION("and a change between two parts is told to all") {
    service->disconnect({kNodes}, at(1ms));
    CHECK(pass_part(0s) == kMaxNotifiedNodes);
    CHECK(pass_part(0s) == 199);
    CHECK(told.at(1) != told.at(kNodes - 1));
    CHECK(service->next_deadline() == now + 999ms);
    CHECK(pass_part(999ms) == kMaxNotifiedNodes);
    CHECK(told.at(1) == told.at(kNodes - 1));
  }
  SECTION("and the rest is not sent when all have left") {
    for (std::uint32_t client = 1; client <= kNodes; ++client)
      service->disconnect({client}, at());
    take();
    hello(1);
    join(1, 2 * kNodes);
    CHECK(pass_part(0s) == 0);
    CHECK(pass_part(1s) == 1);
  }
}

TEST_CASE_METHOD(RunServiceTest, "runs: a node that joins and leaves without end fills no log",
                 "[unit][rendezvous]") {
  hello(1);
  std::vector<LogLine> lines;
  const auto join_and_leave = [&](int times) {
    lines.clear();
    for (int i = 0; i < times; ++i) {
      join(1, 2);
      tell(1, NodeLeft{});
      for (const RunEffect& effect : service->take_effects())
        if (const auto* log = std::get_if<LogLine>(&effect);
            log && log->level >= LogLine::Level::Info)
          lines.push_back(*log);
    }
  };
  join_and_leave(1000);
  CHECK(lines.size() == 50);
  at(5s);
  join_and_leave(1000);
  REQUIRE(lines.size() == 5);
  CHECK_THAT(lines[0].line,
             Catch::StartsWith("node_left run=job") && Catch::Contains(" left_out="));
  CHECK_THAT(lines[1].line, !Catch::Contains("left_out"));
}

}  // namespace muster::testing
