// What a node says about its host: the cause that is known, and no other.

#include <string>
#include <variant>

#include <catch2/catch.hpp>

#include "tests/unit/rendezvous/node/native_participant_fixture.h"

namespace muster::testing {
namespace {

using Catch::Contains;
using Failed = Participant::ConnectFailed;

/// Whatever a node tells people, also as the reason of a restart or of its end.
std::string told(const Participant::Actions& actions) {
  std::string text;
  for (const auto& action : actions) {
    if (const auto* print = std::get_if<Participant::Print>(&action)) text += print->text + "\n";
    if (const auto* restart = std::get_if<Participant::RestartWorkers>(&action))
      text += restart->why + "\n";
    if (const auto* end = std::get_if<Participant::EndJob>(&action)) text += end->why + "\n";
  }
  return text;
}

struct Texts : ParticipantTest {
  explicit Texts(std::optional<Duration> host_absent = {}) : ParticipantTest(host_absent) {}

  /// For so long each try to connect fails in this way. Returns what the node tells.
  std::string fail(Duration time, const Failed& failed) {
    std::string text = told(feed(failed));  // The first try is made at once.
    for (const Instant end = now + time; now < end; now += 100ms) {
      const auto actions = feed(Participant::TimeHasPassed{});
      text += told(actions);
      if (has<Participant::Connect>(actions)) text += told(feed(failed));
    }
    return text;
  }
  void lose_host() {
    run_round();
    feed(Participant::ConnectionBroke{"reset"});
  }

  const Failed refusal{Failed::Why::NoAnswer, "the token is another one", Failed::Found::Refusal};
  const Failed no_name{Failed::Why::NoAnswer, "no name server has answered", Failed::Found::NoWay};
  const Failed silence{Failed::Why::NoAnswer, "it did not answer in time", Failed::Found::Nobody};
};

TEST_CASE_METHOD(Texts, "participant: a host that refuses this node is not called silent or away",
                 "[unit][rendezvous]") {
  lose_host();
  SECTION("while the other nodes are reached") {
    std::string text;
    for (int part = 0; part < 12; ++part) {
      text += told(feed(Participant::PeerReached{40, 1}));
      text += fail(1s, refusal);
    }
    CHECK_THAT(text, Contains("host:29400 does not take this node back, and the nodes of this "
                              "round reach each other: training goes on (the latest attempt: the "
                              "token is another one)"));
    CHECK_THAT(text, !Contains("does not answer"));
  }
  SECTION("while the other nodes are not reached") {
    const std::string text = fail(8s, refusal);
    CHECK_THAT(text, Contains("does not take this node back (the latest attempt: the token is "
                              "another one), not all the other nodes of its round have answered"));
    CHECK_THAT(text, !Contains("neither the rendezvous"));
  }
  SECTION("when the workers fail") {
    fail(2s, refusal);
    const std::string text = told(feed(Participant::WorkersHaveFailed{"rank 0 exited with 7"}));
    CHECK_THAT(text, Contains("does not take this node back: this node reports that") &&
                         Contains("(the latest attempt: the token is another one)"));
    CHECK_THAT(text, !Contains("is away"));
  }
  SECTION("when the workers finish") {
    fail(2s, refusal);
    const std::string text = told(feed(Participant::PartFinished{true, {}}));
    CHECK_THAT(text, Contains("does not take this node back: waiting for it for") &&
                         Contains("the token is another one") && !Contains("is away"));
  }
  SECTION("when this node gives up its part") {
    fail(2s, refusal);
    const std::string text = told(feed(Participant::PartFinished{false, "rank 0 exited with 7"}));
    CHECK_THAT(text, Contains("does not take this node back (the latest attempt: the token is"));
  }
}

struct LimitedTexts : Texts {
  LimitedTexts() : Texts(20s) {}
};

TEST_CASE_METHOD(LimitedTexts, "participant: at the end a refusal is called one, too",
                 "[unit][rendezvous]") {
  lose_host();
  for (int part = 0; part < 18; ++part) {
    feed(Participant::PeerReached{40, 1});
    fail(1s, refusal);
  }
  CHECK_THAT(fail(4s, refusal),
             Contains("was lost (reset) and does not take this node back: the token is another"));
}

TEST_CASE_METHOD(Texts, "participant: a host that was not asked is not called silent or away",
                 "[unit][rendezvous]") {
  lose_host();
  CHECK_THAT(fail(8s, no_name),
             Contains("this node is cut off: the rendezvous at host:29400 cannot "
                      "be reached from here (the latest attempt: no name "
                      "server has answered), not all the other nodes"));
}

TEST_CASE_METHOD(Texts, "participant: a silent host is called silent, whatever was before",
                 "[unit][rendezvous]") {
  lose_host();
  fail(2s, refusal);
  CHECK_THAT(fail(8s, silence), Contains("this node is cut off: neither the rendezvous at host:"));
}

TEST_CASE_METHOD(Texts, "participant: a node is told why it is no member any more",
                 "[unit][rendezvous]") {
  run_round();
  SECTION("for a reason that the host knows") {
    CHECK(told(hear(NotAMember{{}, "its store was not ready"})) == "its store was not ready\n");
  }
  SECTION("for its silence") {
    CHECK_THAT(told(hear(NotAMember{})), Contains("this node was not heard in time"));
  }
  SECTION("when its workers have finished") {
    feed(Participant::ConnectionBroke{"reset"});
    feed(Participant::PartFinished{true, {}});
    connect();
    CHECK_THAT(told(hear(NotAMember{{}, "its round has ended"})),
               Contains("had gone on without it (its round has ended)"));
  }
}

TEST_CASE_METHOD(Texts, "participant: a wait is repeated, rarer each time, with what is to be done",
                 "[unit][rendezvous]") {
  connect();
  feed(Participant::JoinAsked{});
  CHECK(told(hear(NativeWaiting{"1 of 2"})) == "waiting for the other nodes: 1 of 2\n");
  const Instant began = now;
  std::vector<std::string> reminders;
  const auto wait_until = [&](Duration since) {
    while (now < began + since) {
      REQUIRE(participant->next_deadline().has_value());
      now = std::min(*participant->next_deadline(), now + 1s);
      for (const auto& action : hear(NativeAlive{}))
        if (const auto* print = std::get_if<Participant::Print>(&action))
          reminders.push_back(print->text);
    }
  };
  wait_until(9s);
  CHECK(reminders.empty());
  wait_until(11s);
  REQUIRE(reminders.size() == 1);
  CHECK(reminders[0] ==
        "still waiting for the other nodes, for 10 s so far and 600 s at most (--rdzv-conf "
        "join_timeout): 1 of 2; each runs the same command");
  hear(NativeWaiting{"2 of 3"});  // The schedule stays.
  wait_until(29s);
  CHECK(reminders.size() == 1);
  wait_until(31s);
  REQUIRE(reminders.size() == 2);
  CHECK_THAT(reminders[1], Contains("for 30 s so far") && Contains("2 of 3"));
  wait_until(69s);
  CHECK(reminders.size() == 2);
  RoundComplete round{.round = 4, .group_rank = {0}, .group_world_size = 1, .generation = 40};
  round.workers = WorkerRanks{};
  round.store = StoreAddress{"store", 29500};
  hear(round);
  reminders.clear();
  wait_until(200s);
  CHECK(reminders.empty());
}

}  // namespace
}  // namespace muster::testing
