#include "rendezvous/rounds/kept_out.h"

#include "tests/unit/rendezvous/host/rendezvous_fixture.h"

namespace muster::testing {

using namespace std::chrono_literals;
using OperatorWhat = OperatorAsked::What;

TEST_CASE("kept out: by a node's name, or by its host's address", "[unit][rendezvous]") {
  KeptOut kept;
  kept.add("a", KeptOutHow::Drained);
  kept.add("b_7_0", KeptOutHow::Excluded);
  CHECK(kept.find({"a", 1, 0})->node == "a");
  CHECK(kept.find({"a", 2, 0})->how == KeptOutHow::Drained);
  CHECK(kept.find({"b", 7, 0})->how == KeptOutHow::Excluded);
  CHECK_FALSE(kept.find({"b", 8, 0}));
  CHECK_FALSE(kept.find({"aa", 1, 0}));
}

TEST_CASE("kept out: exclude goes before drain, and an excluded node stays excluded",
          "[unit][rendezvous]") {
  KeptOut kept;
  kept.add("a", KeptOutHow::Drained);
  kept.add("a_1_0", KeptOutHow::Excluded);
  CHECK(kept.find({"a", 1, 0})->how == KeptOutHow::Excluded);
  kept.add("a_1_0", KeptOutHow::Drained);
  CHECK(kept.find({"a", 1, 0})->how == KeptOutHow::Excluded);
  CHECK(kept.find({"a", 2, 0})->how == KeptOutHow::Drained);
}

TEST_CASE("kept out: allow of a host allows its nodes as well", "[unit][rendezvous]") {
  KeptOut kept;
  for (const char* node : {"a", "a_1_0", "a_-2_3", "a_b_1_0", "a_1", "ab_1_0"})
    kept.add(node, KeptOutHow::Excluded);
  CHECK(kept.remove("a"));
  CHECK_FALSE(kept.remove("a"));
  std::vector<std::string> left;
  for (const KeptOutEntry& entry : kept.entries())
    left.push_back(entry.node);
  CHECK(left == std::vector<std::string>{"a_1", "a_b_1_0", "ab_1_0"});
}

TEST_CASE("kept out: both lists are bounded", "[unit][rendezvous]") {
  KeptOut kept;
  StrikeList strikes;
  for (std::size_t i = 0; i < kMaxKeptOut; ++i)
    kept.add(std::to_string(i), KeptOutHow::Drained);
  CHECK_FALSE(kept.has_room_for("x"));
  kept.add("x", KeptOutHow::Drained);
  CHECK(kept.entries().size() == kMaxKeptOut);
  kept.add("0", KeptOutHow::Excluded);
  CHECK(kept.find({"0", 1, 0})->how == KeptOutHow::Excluded);
  for (std::size_t i = 0; i <= kMaxStruckHosts; ++i)
    strikes.count_loss(std::to_string(i));
  CHECK(strikes.hosts().size() == kMaxStruckHosts);
  CHECK(strikes.find("0") == Strikes{});  // Its strike was the oldest one.
  CHECK(strikes.hosts().back().host == std::to_string(kMaxStruckHosts));
}

TEST_CASE("kept out: strikes are read back as they were recorded", "[unit][rendezvous]") {
  StrikeList strikes;
  strikes.count_failure("b");
  strikes.count_failure("a");
  strikes.count_loss("b");
  CHECK(strikes.find("b") == Strikes{1, 1});
  const StrikeList again(strikes.hosts());
  CHECK(again.hosts() == strikes.hosts());
  CHECK(again.hosts().back().host == "b");
  StrikeList full({{"a", {kMaxStrikes, 0}}});
  full.count_failure("a");
  CHECK(full.find("a").failures == kMaxStrikes);
}

namespace {

struct KeptOutTest : FourNodes {
  RendezvousActions asks(OperatorWhat what, const std::string& node) {
    return after({}, OperatorAsked{what, node});
  }
  NodeState state_of(const std::string& addr) {
    for (const NodeView& node : rendezvous.view(0, 99, now).nodes)
      if (node.name.addr == addr) return node.state;
    FAIL("there is no node " << addr);
    return {};
  }
  /// The nodes that got RestartRound join again. Returns the actions of the last join.
  RendezvousActions meet_again(const std::vector<std::pair<std::uint32_t, std::string>>& nodes) {
    RendezvousActions last;
    for (const auto& [id, addr] : nodes)
      last = joins(id, addr);
    return last;
  }
};

}  // namespace

TEST_CASE_METHOD(KeptOutTest, "drain: the round goes on, and the next one is without the node",
                 "[unit][rendezvous]") {
  CHECK(sent<RestartRound>(asks(OperatorWhat::Drain, "b")).empty());
  CHECK_THAT(rendezvous.operator_answer(), Catch::Contains("leaves at the next round"));
  CHECK_THAT(rendezvous.operator_answer(), !Catch::Contains("warning"));
  CHECK(state_of("b") == NodeState::Working);
  CHECK(rendezvous.view(0, 9, now).nodes[1].kept_out == KeptOutHow::Drained);
  after({}, WorkersFailed{{1}, 0, "rank 0 exited with 1"});
  CHECK(rendezvous.view(0, 9, now).nodes[0].strikes == Strikes{1, 0});
  const auto complete =
      sent<RoundComplete>(ready(meet_again({{2, "b"}, {1, "a"}, {3, "c"}, {4, "d"}})));
  CHECK(complete.size() == 3);
  CHECK_FALSE(complete.contains(2));
  CHECK(state_of("b") == NodeState::KeptOut);
  CHECK_THAT(rendezvous.reason_for({2}), Catch::Contains("an operator has drained this node"));
  CHECK_THAT(rendezvous.reason_for({2}), Catch::Contains("musterctl allow RUN b"));
  // The end of its muster does not affect the others.
  CHECK(sent<RestartRound>(after(1s, NodeLeft{{2}})).empty());
}

TEST_CASE_METHOD(KeptOutTest,
                 "excluded: the round restarts without the node, and no restart is counted",
                 "[unit][rendezvous]") {
  const auto told = sent<RestartRound>(asks(OperatorWhat::Exclude, "b_1_0"));
  REQUIRE(told.size() == 4);
  CHECK(told.at(1).cause == RestartCause::Requested);
  CHECK(told.at(1).what == "musterctl exclude b_1_0");
  CHECK(rendezvous.restarts_used() == 0);
  // The same request again changes nothing.
  CHECK(asks(OperatorWhat::Exclude, "b_1_0").empty());
  CHECK(sent<RoundComplete>(meet_again({{1, "a"}, {3, "c"}, {4, "d"}})).empty());
  CHECK(sent<PrepareStore>(joins(2, "b")).size() == 1);  // Its workers have stopped.
  CHECK(rendezvous.participants() == 3);
  CHECK(state_of("b") == NodeState::KeptOut);
}

TEST_CASE_METHOD(KeptOutTest, "allow: the node joins as a newcomer does", "[unit][rendezvous]") {
  asks(OperatorWhat::Exclude, "b");
  ready(meet_again({{2, "b"}, {1, "a"}, {3, "c"}, {4, "d"}}));
  CHECK(sent<RestartRound>(asks(OperatorWhat::Allow, "b")).size() == 3);  // --scale-policy=now
  CHECK_THAT(rendezvous.operator_answer(), Catch::Contains("as any newcomer does"));
  CHECK(sent<RoundComplete>(ready(meet_again({{1, "a"}, {3, "c"}, {4, "d"}}))).size() == 4);
  asks(OperatorWhat::Allow, "b");
  CHECK_THAT(rendezvous.operator_answer(), Catch::Contains("was not kept out"));
}

TEST_CASE_METHOD(KeptOutTest, "allow: it has an effect only on nodes that were kept out",
                 "[unit][rendezvous]") {
  const auto has_effect = [&](OperatorWhat what, const char* node) {
    return rendezvous.has_effect({what, node});
  };
  CHECK_FALSE(has_effect(OperatorWhat::Allow, "b"));
  CHECK(has_effect(OperatorWhat::Drain, "b"));
  CHECK(has_effect(OperatorWhat::Restart, ""));
  asks(OperatorWhat::Exclude, "b_1_0");
  asks(OperatorWhat::Exclude, "elsewhere");
  CHECK(has_effect(OperatorWhat::Allow, "b"));
  CHECK(has_effect(OperatorWhat::Allow, "elsewhere"));
  CHECK_FALSE(has_effect(OperatorWhat::Allow, "c"));
  asks(OperatorWhat::Allow, "b");
  CHECK_FALSE(has_effect(OperatorWhat::Allow, "b"));
}

TEST_CASE_METHOD(KeptOutTest,
                 "excluded: a node that joins later is kept out, too, and others are not",
                 "[unit][rendezvous]") {
  asks(OperatorWhat::Exclude, "e");
  CHECK_THAT(rendezvous.operator_answer(), Catch::Contains("not in the run now"));
  after({}, NodeLeft{{4}});
  joins(5, "e");
  CHECK(state_of("e") == NodeState::KeptOut);
  meet_again({{1, "a"}, {2, "b"}, {3, "c"}});
  CHECK(rendezvous.participants() == 3);
  joins(5, "e");
  CHECK(state_of("e") == NodeState::KeptOut);
  CHECK(sent<RestartRound>(joins(6, "f")).size() == 3);  // A place is free for f.
  CHECK(state_of("f") != NodeState::KeptOut);
}

TEST_CASE_METHOD(KeptOutTest,
                 "kept out: the operator is warned if too few nodes are left, or the node hosts",
                 "[unit][rendezvous]") {
  asks(OperatorWhat::Drain, "a");
  asks(OperatorWhat::Drain, "b");
  CHECK_THAT(rendezvous.operator_answer(), !Catch::Contains("warning"));
  asks(OperatorWhat::Drain, "c");
  CHECK_THAT(
      rendezvous.operator_answer(),
      Catch::Contains("warning: without it 1 node is left, and --nnodes asks for at least 2"));
  NodeJoined host = join(5, "host");
  host.hosts_rendezvous = true;
  after({}, host);
  asks(OperatorWhat::Drain, "host");
  CHECK_THAT(rendezvous.operator_answer(), Catch::Contains("hosts the rendezvous"));
  CHECK_THAT(rendezvous.reason_for({5}), Catch::Contains("the run ends if this muster does"));
}

TEST_CASE_METHOD(KeptOutTest, "excluded: no node is excluded when others have finished already",
                 "[unit][rendezvous]") {
  after({}, NodeFinished{{1}, 0, true, ""});
  CHECK(sent<RestartRound>(asks(OperatorWhat::Exclude, "b")).empty());
  CHECK_THAT(rendezvous.operator_answer(), Catch::Contains("others have finished already"));
  CHECK(state_of("b") == NodeState::Working);
}

TEST_CASE_METHOD(KeptOutTest, "kept out: the objections to an operator's request",
                 "[unit][rendezvous]") {
  const auto objection = [&](OperatorWhat what, const std::string& node) {
    return rendezvous.objection_to({what, node});
  };
  CHECK_THAT(objection(OperatorWhat::Drain, "x"), Catch::Contains("`musterctl nodes` shows both"));
  CHECK(objection(OperatorWhat::Exclude, "x").empty());
  CHECK_THAT(objection(OperatorWhat::Exclude, ""), Catch::Contains("1 to "));
  CHECK_THAT(objection(OperatorWhat::Exclude, "a b"), Catch::Contains("no spaces"));
  CHECK_THAT(objection(OperatorWhat::Exclude, std::string(kMaxNodeTextBytes + 1, 'x')),
             Catch::Contains("1 to "));
  asks(OperatorWhat::Exclude, "b");
  CHECK_THAT(objection(OperatorWhat::Allow, "b_1_0"), Catch::Contains("allow b"));
  CHECK(objection(OperatorWhat::Allow, "b").empty());
  for (std::size_t i = 1; i < kMaxKeptOut; ++i)
    asks(OperatorWhat::Exclude, "x" + std::to_string(i));
  CHECK_THAT(objection(OperatorWhat::Exclude, "x"), Catch::Contains("allow some of them first"));
  CHECK(objection(OperatorWhat::Exclude, "b").empty());
  after({}, OperatorAsked{OperatorWhat::Stop});
  CHECK_THAT(objection(OperatorWhat::Allow, "b"), Catch::Contains("has ended"));
}

TEST_CASE("kept out: runs without muster nodes refuse it", "[unit][rendezvous]") {
  const Rendezvous rendezvous(RendezvousSetup{});
  CHECK_THAT(rendezvous.objection_to({OperatorWhat::Exclude, "a"}),
             Catch::Contains("no muster node"));
}

TEST_CASE_METHOD(RendezvousTest, "drain: a round that gathers goes on without the node",
                 "[unit][rendezvous]") {
  joins(1, "a");
  joins(2, "b");
  REQUIRE(rendezvous.participants() == 2);
  after({}, OperatorAsked{OperatorWhat::Drain, "b"});
  CHECK(rendezvous.participants() == 1);
  CHECK_THAT(std::string(rendezvous.reason()), Catch::Contains("kept out by an operator: b_1_0"));
  joins(3, "c");
  CHECK(sent<RoundComplete>(ready(pass(30s, {1, 2, 3}))).size() == 2);
}

TEST_CASE_METHOD(RendezvousTest, "excluded: a spare steps in", "[unit][rendezvous]") {
  settings.max_nodes = 2;
  rendezvous = Rendezvous(RendezvousSetup{.run = settings, .life = 7});
  joins(1, "a");
  ready(joins(2, "b"));
  joins(3, "c");
  REQUIRE(rendezvous.participants() == 2);
  after({}, OperatorAsked{OperatorWhat::Exclude, "b"});
  CHECK_THAT(rendezvous.operator_answer(), !Catch::Contains("warning"));
  joins(2, "b");
  const auto complete = sent<RoundComplete>(ready(joins(1, "a")));
  CHECK(complete.size() == 2);
  CHECK(complete.contains(3));
}

TEST_CASE_METHOD(KeptOutTest,
                 "strikes: nodes that go after the end of the run are not counted as lost",
                 "[unit][rendezvous]") {
  after({}, OperatorAsked{OperatorWhat::Stop});
  after({}, ConnectionLost{{2}});
  pass(1s, {1, 3, 4});
  CHECK(rendezvous.view(0, 9, now).strikes.empty());
}

TEST_CASE_METHOD(KeptOutTest, "strikes: losses of nodes that were in a round are counted",
                 "[unit][rendezvous]") {
  after({}, ConnectionLost{{2}});
  pass(1s, {1, 3, 4});
  const RunView view = rendezvous.view(0, 9, now);
  REQUIRE(view.strikes.size() == 1);
  CHECK(view.strikes[0] == HostStrikes{"b", {0, 1}});
  joins(9, "b");
  for (const NodeView& node : rendezvous.view(0, 9, now).nodes)
    CHECK(node.strikes.losses == (node.name.addr == "b" ? 1 : 0));
}

}  // namespace muster::testing
