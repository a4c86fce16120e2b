#include "rendezvous/host/run_service.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/rendezvous/host/run_service_fixture.h"

namespace muster::testing {

using namespace std::chrono_literals;

TEST_CASE_METHOD(RunServiceTest, "runs: the welcome tells a node its lease", "[unit][rendezvous]") {
  reset({.setup = {.lease = 7s}});
  const auto answer = tell(1, NativeHello{kNativeProtocolVersion, "9.9", "job"});
  CHECK(std::get<NativeWelcome>(*answer.reply).lease == Duration(7s));
}

TEST_CASE_METHOD(RunServiceTest, "runs: a finished node learns after a while for whom it waits",
                 "[unit][rendezvous]") {
  two_in_a_round();
  tell(1, NodeFinished{{}, 0, true, ""});
  service->time_passed(at(900ms));
  CHECK(messages<NativeWaiting>().empty());
  service->time_passed(at(100ms));
  const auto told = messages<NativeWaiting>();
  REQUIRE(told.size() == 1);
  CHECK(told.at(1).text ==
        "round 0 runs with 2 nodes; 1 has finished, still at work: host2_2_0 (rank 1)");
  for (int i = 0; i < 4; ++i) {
    tell(1, KeptAlive{});
    tell(2, KeptAlive{});
    service->time_passed(at(2s));
  }
  CHECK(messages<NativeWaiting>().empty());  // Nothing has changed.
  service->disconnect({2}, at());
  CHECK_FALSE(messages<RunEnded>().at(1).succeeded);
  CHECK_THAT(notes, Catch::Contains("node_lost run=job node=host2_2_0 rank=1 "
                                    "why=\"its connection closed\"\n"));
  service->disconnect({1}, at());
  CHECK_THAT(notes, !Catch::Contains("node=host1_1_0 rank=0"));
}

TEST_CASE_METHOD(RunServiceTest,
                 "runs: the nodes learn after a while that rank 0 prepares the round",
                 "[unit][rendezvous]") {
  hello(1);
  join(1, 2);
  service->time_passed(at(2s));
  CHECK(messages<NativeWaiting>().size() == 1);  // It says that one more node must come.
  at(1s);
  hello(2);
  join(2, 2);
  service->time_passed(at());
  CHECK(messages<NativeWaiting>().empty());
  service->time_passed(at(1s));
  const auto told = messages<NativeWaiting>();
  REQUIRE(told.size() == 2);
  CHECK_THAT(told.at(2).text, Catch::Contains("rank 0 empties the workers' store"));
}

TEST_CASE_METHOD(RunServiceTest, "runs: each node beyond the maximum is told that it is a spare",
                 "[unit][rendezvous]") {
  two_in_a_round();
  for (const std::uint32_t client : {3, 4}) {
    hello(client);
    join(client, 2);
    service->time_passed(at(1s));
    const auto told = messages<NativeWaiting>();
    REQUIRE(told.size() == 1);
    CHECK(told.at(client).text ==
          "round 0 runs with 2 nodes; 2 of 2 places are taken: this node waits as a spare");
  }
}

TEST_CASE_METHOD(RunServiceTest, "runs: muster nodes meet, fail, restart and finish",
                 "[unit][rendezvous]") {
  two_in_a_round();
  tell(2, WorkersFailed{{}, 0, "rank 1 exited with 1"});
  const auto restarts = messages<RestartRound>();
  REQUIRE(restarts.size() == 2);
  CHECK(restarts.at(1).what == "rank 1 exited with 1");
  join(1, 2, 0);
  join(2, 2, 0);
  CHECK(messages<PrepareStore>().count(1) == 1);
  tell(1, StoreReady{{}, 1, "10.0.0.1", 29500});
  const auto rounds = messages<RoundComplete>();
  REQUIRE(rounds.size() == 2);
  CHECK(rounds.at(2).round == 1);
  CHECK(rounds.at(2).restart_count == 1);
  tell(1, NodeFinished{{}, 1, true, ""});
  CHECK(messages<RunEnded>().empty());
  tell(2, NodeFinished{{}, 1, true, ""});
  CHECK(messages<RunEnded>().size() == 2);
  CHECK_THAT(notes, Catch::Contains("round_complete run=job round=0 nodes=2") &&
                        Catch::Contains("round_restarts run=job round=0 cause=workers_failed "
                                        "who=host2_2_0 what=\"rank 1 exited with 1\" restarts=1") &&
                        Catch::Contains("round_complete run=job round=1") &&
                        Catch::Contains("run_ended run=job succeeded=true"));
}

TEST_CASE_METHOD(RunServiceTest, "runs: a closed connection is a lost node", "[unit][rendezvous]") {
  two_in_a_round();
  service->disconnect({2}, at());
  const auto restarts = messages<RestartRound>();
  REQUIRE(restarts.size() == 1);
  CHECK(restarts.at(1).cause == RestartCause::NodeLost);
  CHECK_THAT(restarts.at(1).what, Catch::Contains("closed"));
}

TEST_CASE_METHOD(RunServiceTest, "runs: a silent node is lost when its lease is over",
                 "[unit][rendezvous]") {
  two_in_a_round();
  at(4s);
  tell(1, KeptAlive{});
  REQUIRE(service->next_deadline() == now + 1s);
  service->time_passed(at(1s));
  const auto restarts = messages<RestartRound>();
  REQUIRE(restarts.count(1) == 1);
  CHECK_THAT(restarts.at(1).what, Catch::Contains("not heard for 5 s"));
  tell(2, KeptAlive{});
  CHECK(messages<NotAMember>().count(2) == 1);
}

TEST_CASE_METHOD(RunServiceTest,
                 "runs: a waiting node learns for whom, once a second and on each change",
                 "[unit][rendezvous]") {
  for (const std::uint32_t client : {1, 2}) {
    hello(client);
    join(client, 3);
  }
  CHECK(messages<NativeWaiting>().empty());
  REQUIRE(service->next_deadline() == now + 1s);
  service->time_passed(at(1s));
  const auto told = messages<NativeWaiting>();
  REQUIRE(told.size() == 2);
  CHECK_THAT(told.at(1).text,
             Catch::Contains("host1_1_0, host2_2_0") && Catch::Contains("1 more must come"));
  // While nothing changes, no message is sent, however long it takes.
  for (int i = 0; i < 10; ++i) {
    tell(1, KeptAlive{});
    tell(2, KeptAlive{});
    service->time_passed(at(1s));
  }
  CHECK(take().empty());
  service->disconnect({2}, at());
  service->time_passed(at());
  CHECK(messages<NativeWaiting>().size() == 1);
}

TEST_CASE_METHOD(RunServiceTest, "runs: the first message must be a hello that fits",
                 "[unit][rendezvous]") {
  CHECK_THAT(tell(1, KeptAlive{}).close, Catch::Contains("not hello"));
  const auto older = tell(2, NativeHello{7, "3.1", "job"});
  CHECK_THAT(older.close, Catch::Contains("muster 3.1 at 10.0.0.2 speaks protocol 7") &&
                              Catch::Contains("muster 9.9 with protocol 1"));
  CHECK_THAT(std::get<NativeRefused>(*older.reply).text, Catch::Contains("protocol 7"));
  CHECK_THAT(tell(3, NativeHello{kNativeProtocolVersion, "9.9", ""}).close,
             Catch::Contains("empty"));
  hello(4);
  CHECK_THAT(tell(4, NativeHello{kNativeProtocolVersion, "9.9", "job"}).close,
             Catch::Contains("too late"));
  const auto garbage = service->receive({5}, "{\"type\":3}", "10.0.0.5", at());
  CHECK_THAT(garbage.close, Catch::Contains("field type"));
  CHECK(std::holds_alternative<NativeRefused>(*garbage.reply));
  CHECK(service->runs() == 1);
}

TEST_CASE_METHOD(RunServiceTest, "runs: an agent serves its own run only", "[unit][rendezvous]") {
  reset({.only_run = "job"});
  CHECK(service->has_state(kKey));
  const auto answer = tell(1, NativeHello{kNativeProtocolVersion, "9.9", "other"});
  CHECK_THAT(answer.close,
             Catch::Contains("--rdzv-id=other") && Catch::Contains("here has --rdzv-id=job"));
  // Other runs are kept as ordinary keys, as in torch's store.
  CHECK(std::holds_alternative<NotOfARun>(
      compare_set(2, "", kNoStateText, "/torch.rendezvous.other")));
  hello(3);
  service->drain();
  CHECK_THAT(tell(4, NativeHello{kNativeProtocolVersion, "9.9", "job"}).close,
             Catch::Contains("ending"));
}

TEST_CASE_METHOD(RunServiceTest, "runs: a node that waits learns that one with another id came",
                 "[unit][rendezvous]") {
  reset({.only_run = "job"});
  hello(1);
  join(1, 2);
  service->time_passed(at(1s));
  CHECK_THAT(messages<NativeWaiting>().at(1).text, Catch::Contains("1 more must come"));
  tell(2, NativeHello{kNativeProtocolVersion, "9.9", "other"});
  service->time_passed(at(1s));
  CHECK_THAT(messages<NativeWaiting>().at(1).text,
             Catch::Contains("a node was refused: one at ") &&
                 Catch::Contains("has --rdzv-id=other, and this job has --rdzv-id=job"));
  tell(3, NativeHello{kNativeProtocolVersion, "9.9", "other"});
  service->time_passed(at(1s));
  CHECK(messages<NativeWaiting>().size() <= 1);
}

TEST_CASE_METHOD(RunServiceTest,
                 "runs: a written state makes a run, and other values stay in the store",
                 "[unit][rendezvous]") {
  CHECK(std::holds_alternative<NotOfARun>(compare_set(1, "", "no state at all")));
  CHECK(std::holds_alternative<NotOfARun>(compare_set(1, "what?", kNoStateText)));
  CHECK(std::holds_alternative<NotOfARun>(
      service->compare_set({1}, {kKey, "", kNoStateText, true}, at())));
  CHECK(std::holds_alternative<NotOfARun>(compare_set(1, "", kNoStateText, "/other")));
  CHECK(!service->has_state(kKey));
  CHECK(begin(1) == kNoStateText);
  CHECK(service->has_state(kKey));
  const auto effects = take();
  REQUIRE(effects.size() == 1);
  CHECK(std::get<ShowState>(effects[0]).state_key == kKey);
  CHECK(service->state_clients() == 1);
  service->disconnect({1}, at());
  CHECK(service->state_clients() == 0);
}

TEST_CASE_METHOD(RunServiceTest, "runs: a compare-and-set with a lost state gets the current state",
                 "[unit][rendezvous]") {
  // The store was restarted, so the state that the torchrun node has seen is gone.
  const std::string old = joined_by(1, std::string(kNoStateText));
  const std::string next = joined_by(2, old);
  CHECK(text(compare_set(2, old, next)) != old);
}

TEST_CASE_METHOD(RunServiceTest, "runs: a torchrun node gets its own text back when it has won",
                 "[unit][rendezvous]") {
  const std::string seen = begin(1);
  const std::string desired = joined_by(1, seen);
  CHECK(text(compare_set(1, seen, desired)) == desired);
  CHECK(std::string(service->read_state({9}, kKey, at()).view()) == desired);
}

TEST_CASE_METHOD(RunServiceTest, "runs: losers of a compare-and-set take turns",
                 "[unit][rendezvous]") {
  const std::string seen = begin(1);
  for (const std::uint32_t client : {2, 3, 4})
    begin(client);
  take();
  const std::string first = joined_by(1, seen);
  CHECK(text(compare_set(1, seen, first)) == first);
  // All others have seen the same state. The first of them has its turn at once, the others wait.
  CHECK(text(compare_set(2, seen, joined_by(2, seen))) == first);
  CHECK(std::holds_alternative<HeldBack>(compare_set(3, seen, joined_by(3, seen))));
  CHECK(std::holds_alternative<HeldBack>(compare_set(4, seen, joined_by(4, seen))));
  CHECK(take().empty());
  const std::string second = joined_by(2, first);
  CHECK(text(compare_set(2, first, second)) == second);
  auto effects = take();
  REQUIRE(effects.size() == 1);
  CHECK(std::get<AnswerHeld>(effects[0]).to == ConnectionId{3});
  CHECK(std::get<AnswerHeld>(effects[0]).text.view() == second);

  SECTION("a turn that is not used passes on") {
    service->time_passed(at(50ms));
    effects = take();
    REQUIRE(effects.size() == 1);
    CHECK(std::get<AnswerHeld>(effects[0]).to == ConnectionId{4});
  }
  SECTION("a client that dies with the turn passes it on") {
    service->disconnect({3}, at());
    effects = take();
    REQUIRE(effects.size() == 1);
    CHECK(std::get<AnswerHeld>(effects[0]).to == ConnectionId{4});
  }
  SECTION("a client that asks for something else has had its turn") {
    service->read_state({3}, kKey, at());
    effects = take();
    REQUIRE(effects.size() == 1);
    CHECK(std::get<AnswerHeld>(effects[0]).to == ConnectionId{4});
  }
  SECTION("a client that dies in the queue is left out") {
    service->disconnect({4}, at());
    const std::string third = joined_by(3, second);
    CHECK(text(compare_set(3, second, third)) == third);
    CHECK(take().empty());
  }
}

TEST_CASE_METHOD(RunServiceTest, "runs: a malformed state is refused with the place of the error",
                 "[unit][rendezvous]") {
  const std::string none = begin(1);
  const std::string seen = text(compare_set(1, none, joined_by(1, none)));
  const auto desired = compare_set(1, seen, "gASV!");
  REQUIRE(std::holds_alternative<StateRefused>(desired));
  CHECK_THAT(std::get<StateRefused>(desired).reason,
             Catch::Contains("desired state of " + kKey) && Catch::Contains("character 5"));
  const auto expected = compare_set(1, "nonsense?", joined_by(2, seen));
  REQUIRE(std::holds_alternative<StateRefused>(expected));
  CHECK_THAT(std::get<StateRefused>(expected).reason, Catch::Contains("expected state"));
  // torchrun never makes two joins in one step.
  const auto both = compare_set(1, seen, joined_by(3, joined_by(2, seen)));
  CHECK(std::holds_alternative<StateRefused>(both));
}

TEST_CASE_METHOD(RunServiceTest, "runs: a state's key with another value becomes the store's",
                 "[unit][rendezvous]") {
  const auto surprise = [&](std::uint32_t client) {
    const auto outcome = compare_set(client, kNoStateText, "eA==");
    REQUIRE(std::holds_alternative<NotOfARun>(outcome));
    return std::get<NotOfARun>(outcome).surprise;
  };
  begin(1);
  begin(2);
  SECTION("a log line reports the value") {
    CHECK_THAT(surprise(1),
               Catch::Contains(kKey + " is set to a value that is no rendezvous' state"));
    CHECK_FALSE(service->has_state(kKey));
    CHECK(service->state_clients() == 0);
    CHECK(service->runs() == 0);
    CHECK(surprise(2).empty());  // Now it is a key like any other.
    service->disconnect({1}, at());
    service->disconnect({2}, at());
    service->time_passed(at(100s));
    begin(3);  // Nothing is stored under the key in this test, so it becomes a run again.
    CHECK(service->has_state(kKey));
  }
  SECTION("but not if a muster node is connected for the run") {
    hello(4);
    CHECK_FALSE(service->return_key_to_store(kKey));
    CHECK(std::holds_alternative<StateRefused>(compare_set(1, kNoStateText, "eA==")));
  }
  SECTION("but not if a node is in the run") {
    text(compare_set(1, kNoStateText, joined_by(1, std::string(kNoStateText))));
    CHECK_FALSE(service->return_key_to_store(kKey));
  }
}

TEST_CASE_METHOD(RunServiceTest, "runs: a muster node is in the state that torchrun nodes read",
                 "[unit][rendezvous]") {
  two_in_a_round();
  const RendezvousState seen = state(begin(5));
  CHECK(seen.complete);
  CHECK(seen.participants.size() == 2);
  CHECK(*seen.participants.find(NodeName{"host2", 2, 0}) == 1);
}

TEST_CASE_METHOD(RunServiceTest, "runs: an id is free again when its run has ended",
                 "[unit][rendezvous]") {
  two_in_a_round();
  for (const std::uint32_t client : {1, 2})
    tell(client, NodeFinished{{}, 0, true, ""});
  REQUIRE(messages<RunEnded>().size() == 2);

  SECTION("for a muster node") {
    hello(3);
    join(3, 1);
    const auto effects = take();
    REQUIRE(effects.size() >= 2);
    CHECK(std::get<ForgetRun>(effects[0]).state_key == kKey);
    CHECK(!std::get<ForgetRun>(effects[0]).with_state);
    tell(3, StoreReady{{}, 0, "10.0.0.3", 1});
    const auto complete = messages<RoundComplete>();
    REQUIRE(complete.count(3) == 1);
    CHECK(complete.at(3).life == 1002);  // The first run's was 1001.
    // The first clients are still connected, but do not belong to the new run.
    tell(1, KeptAlive{});
    service->disconnect({1}, at());
    CHECK(take().empty());
    CHECK(service->rendezvous("job")->members() == 1);
  }
  SECTION("for a torchrun node") {
    CHECK(begin(3) == kNoStateText);
    CHECK(std::holds_alternative<ForgetRun>(take().at(0)));
  }
  SECTION("but not for a node of the old one that has not heard of it yet") {
    join(1, 2, 0);
    const auto refused = messages<JoinRefused>();
    REQUIRE(refused.count(1) == 1);
    CHECK(refused.at(1).why == JoinRefused::Why::Closed);
    hello(6);
    join(6, 2, 0);  // A node of the old run on a new connection.
    CHECK(messages<JoinRefused>().count(6) == 1);
  }
  SECTION("the run is forgotten a while after the last node has left") {
    for (const std::uint32_t client : {1, 2})
      service->disconnect({client}, at());
    service->time_passed(at(59s));
    CHECK(service->runs() == 1);
    service->time_passed(at(1s));
    CHECK(service->runs() == 0);
    CHECK(std::get<ForgetRun>(take().back()).with_state);
    CHECK(!service->next_deadline());
  }
}

TEST_CASE_METHOD(RunServiceTest, "runs: a run that all nodes have left can be used again later",
                 "[unit][rendezvous]") {
  two_in_a_round();
  hello(3);  // A connection keeps the run known.
  for (const std::uint32_t client : {1, 2})
    service->disconnect({client}, at());
  take();
  SECTION("at once it is the same run, with its settings") {
    join(3, 4);
    const auto refused = messages<JoinRefused>();
    REQUIRE(refused.count(3) == 1);
    CHECK(refused.at(3).why == JoinRefused::Why::Settings);
  }
  SECTION("later it begins again") {
    at(60s);
    join(3, 4);
    CHECK(messages<JoinRefused>().empty());
    CHECK(service->rendezvous("job")->round() == 0);
  }
}

TEST_CASE_METHOD(RunServiceTest,
                 "runs: their number is limited, and a run without nodes makes room",
                 "[unit][rendezvous]") {
  reset({.runs = 2});
  hello(1, "a");
  hello(2, "b");
  const auto refused = tell(3, NativeHello{kNativeProtocolVersion, "9.9", "c"});
  CHECK_THAT(refused.close, Catch::Contains("limit runs=2"));
  CHECK(std::holds_alternative<StateRefused>(
      compare_set(4, "", kNoStateText, "/torch.rendezvous.c")));
  service->disconnect({1}, at());
  hello(3, "c");
  CHECK(!service->has_state("/torch.rendezvous.a"));
  CHECK(service->runs() == 2);
}

TEST_CASE_METHOD(RunServiceTest,
                 "runs: one connection may be in the runs of several torchrun nodes",
                 "[unit][rendezvous]") {
  CHECK(text(compare_set(1, "", kNoStateText, "/torch.rendezvous.a")) == kNoStateText);
  CHECK(text(compare_set(1, "", kNoStateText, "/torch.rendezvous.b")) == kNoStateText);
  CHECK(service->state_clients() == 1);
  service->disconnect({1}, at());
  CHECK(service->state_clients() == 0);
  service->time_passed(at(60s));
  CHECK(service->runs() == 0);
}

TEST_CASE_METHOD(RunServiceTest,
                 "runs: the address of a torchrun rank 0 is repeated in later rounds only",
                 "[unit][rendezvous]") {
  const auto repeats = [&] {
    std::vector<RepeatMaster> found;
    for (const RunEffect& effect : take())
      if (const auto* repeat = std::get_if<RepeatMaster>(&effect)) found.push_back(*repeat);
    return found;
  };
  // Two torchrun nodes alone. The second one sees the maximum and completes the round.
  const auto round_of = [&](const std::string& seen, const std::vector<std::uint32_t>& clients) {
    std::string text = seen;
    for (const std::uint32_t client : clients) {
      std::string next = joined_by(client, text);
      if (client == clients.back()) {
        RendezvousState complete = state(next);
        complete.complete = true;
        int rank = 0;
        for (auto& [name, number] : complete.participants)
          number = rank++;
        next = encode_state(complete);
      }
      text = this->text(compare_set(client, text, next));
    }
    return text;
  };
  std::string text = round_of(begin(1), {1, 2});
  REQUIRE(state(text).complete);
  service->time_passed(at(10s));
  CHECK(repeats().empty());
  service->disconnect({1}, at());
  service->disconnect({2}, at());
  text = round_of(begin(3), {3, 4});
  REQUIRE(state(text).complete);
  REQUIRE(state(text).round == 1);
  CHECK(repeats().empty());
  service->time_passed(at(3s));
  const auto found = repeats();
  REQUIRE(found.size() == 1);
  CHECK(found[0].round == 1);
  CHECK(found[0].state_key == kKey);
  CHECK(found[0].addr.substr(0, 4) == "host");
}

TEST_CASE_METHOD(RunServiceTest, "runs: the address of a muster rank 0 is not repeated",
                 "[unit][rendezvous]") {
  two_in_a_round();
  tell(2, WorkersFailed{{}, 0, "x"});
  join(1, 2, 0);
  join(2, 2, 0);
  tell(1, StoreReady{{}, 1, "10.0.0.1", 29500});
  for (int i = 0; i < 5; ++i) {
    tell(1, KeptAlive{});
    tell(2, KeptAlive{});
    service->time_passed(at(1s));
  }
  for (const RunEffect& effect : take())
    CHECK(!std::holds_alternative<RepeatMaster>(effect));
}

TEST_CASE_METHOD(RunServiceTest, "runs: a peer's text stays within its line of the log",
                 "[unit][rendezvous]") {
  hello(1, "a\nb");
  NodeJoined joined;
  joined.name = {"x\" evil=\"1\n", 1, 0};
  joined.run = for_nodes(1);
  tell(1, joined);
  take();
  CHECK_THAT(notes,
             Catch::Contains(R"(node_joined run="a\x0ab" node="x\" evil=\"1\x0a_1_0" workers=1)"));
}

}  // namespace muster::testing
