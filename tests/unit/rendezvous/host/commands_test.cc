// Nodes of one run that run different commands.

#include "tests/unit/rendezvous/host/rendezvous_fixture.h"

namespace muster::testing {
namespace {

using namespace std::chrono_literals;

struct CommandsTest : RendezvousTest {
  CommandsTest() : RendezvousTest({.min_nodes = 3, .max_nodes = 6}) {}
  NodeJoined of(std::uint32_t id, const std::string& command, const std::string& role = "r") {
    NodeJoined event = joiner(id, "n" + std::to_string(id));
    event.command = command;
    event.role = role;
    return event;
  }
  static std::size_t logged(const RendezvousActions& actions) {
    return static_cast<std::size_t>(std::count_if(
        actions.begin(), actions.end(),
        [](const auto& action) { return std::holds_alternative<CommandsDiffer>(action); }));
  }
};

TEST_CASE_METHOD(CommandsTest, "commands: nodes with different commands are told of each other",
                 "[unit][rendezvous]") {
  CHECK(after(0s, of(1, "aa")).empty());
  CHECK(sent<Notice>(after(0s, of(2, "aa"))).empty());
  const auto first = after(0s, of(3, "bb"));
  REQUIRE(sent<Notice>(first).size() == 2);
  for (const std::uint32_t id : {1, 3})
    CHECK_THAT(sent<Notice>(first).at(id).text, Catch::Contains("n1_1_0") &&
                                                    Catch::Contains("n3_1_0") &&
                                                    Catch::Contains("--rdzv-id"));
  CHECK(logged(first) == 1);
  // The first node and the log are told once, each other node for itself.
  const auto second = after(0s, of(4, "cc"));
  REQUIRE(sent<Notice>(second).size() == 1);
  CHECK(sent<Notice>(second).contains(4));
  CHECK(logged(second) == 0);
  CHECK(sent<Notice>(after(0s, of(4, "cc"))).empty());  // It joins again.
}

TEST_CASE_METHOD(CommandsTest, "commands: other roles and older musters are not compared",
                 "[unit][rendezvous]") {
  after(0s, of(1, "aa"));
  CHECK(sent<Notice>(after(0s, of(2, "bb", "other"))).empty());
  CHECK(sent<Notice>(after(0s, of(3, ""))).empty());
  CHECK(sent<Notice>(after(0s, of(4, "cc", "other"))).size() == 2);
}

TEST_CASE_METHOD(CommandsTest, "commands: a new command may replace the old one node by node",
                 "[unit][rendezvous]") {
  after(0s, of(1, "aa"));
  after(0s, NodeLeft{{1}});
  CHECK(sent<Notice>(after(0s, of(2, "bb"))).empty());
  CHECK(sent<Notice>(after(0s, of(3, "bb"))).empty());
  CHECK(sent<Notice>(after(0s, of(4, "aa"))).size() == 2);
}

TEST_CASE_METHOD(CommandsTest, "commands: the number of compared roles is bounded",
                 "[unit][rendezvous]") {
  RendezvousTest many({.min_nodes = 500, .max_nodes = 500});
  settings = many.settings;
  const auto join = [&](std::uint32_t id, const std::string& command, std::size_t role) {
    return sent<Notice>(many.after(0s, of(id, command, "role " + std::to_string(role)))).size();
  };
  std::uint32_t id = 0;
  for (std::size_t role = 0; role <= kMaxComparedRoles; ++role)
    CHECK(join(++id, "aa", role) == 0);
  CHECK(join(++id, "bb", kMaxComparedRoles - 1) == 2);
  CHECK(join(++id, "bb", kMaxComparedRoles) == 0);
}

}  // namespace
}  // namespace muster::testing
