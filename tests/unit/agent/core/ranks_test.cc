#include "agent/core/ranks.h"

#include <algorithm>
#include <set>

#include <catch2/catch.hpp>

#include "tests/support/prng.h"

namespace muster {
namespace {

TEST_CASE("ranks: workers are numbered by group rank, and within their role", "[unit][agent]") {
  const auto ranks = assign_ranks({{{0}, "a", 1}, {{1}, "b", 2}, {{2}, "a", 2}});
  REQUIRE(ranks.has_value());
  // base_global_rank, world_size, base_role_rank, role_world_size: as torchrun 2.13 assigns them.
  CHECK(*ranks == std::vector<AssignedRanks>{{{0}, 5, 0, 3}, {{1}, 5, 0, 2}, {{3}, 5, 1, 3}});
  CHECK((*ranks)[2].global_rank(LocalRank{1}) == GlobalRank{4});
  CHECK((*ranks)[2].role_rank(LocalRank{1}) == 2);
}

TEST_CASE("ranks: the order in which nodes are given does not matter", "[unit][agent]") {
  const auto sorted = assign_ranks({{{0}, "a", 4}, {{1}, "a", 1}, {{2}, "b", 2}});
  const auto shuffled = assign_ranks({{{2}, "b", 2}, {{0}, "a", 4}, {{1}, "a", 1}});
  REQUIRE(sorted.has_value());
  REQUIRE(shuffled.has_value());
  CHECK(*sorted == *shuffled);
}

TEST_CASE("ranks: one node of one worker is a world", "[unit][agent]") {
  const auto ranks = assign_ranks({{{0}, "default", 1}});
  REQUIRE(ranks.has_value());
  CHECK(*ranks == std::vector<AssignedRanks>{{{0}, 1, 0, 1}});
}

TEST_CASE("ranks: impossible group ranks and numbers of workers are errors", "[unit][agent]") {
  CHECK(assign_ranks({}).error() == RanksError::NoNodes);
  CHECK(assign_ranks({{{0}, "a", 1}, {{0}, "a", 1}}).error() == RanksError::NotAPermutation);
  CHECK(assign_ranks({{{1}, "a", 1}}).error() == RanksError::NotAPermutation);
  CHECK(assign_ranks({{{-1}, "a", 1}, {{0}, "a", 1}}).error() == RanksError::NotAPermutation);
  CHECK(assign_ranks({{{0}, "a", 0}}).error() == RanksError::BadLocalWorldSize);
  CHECK(assign_ranks({{{0}, "a", -3}}).error() == RanksError::BadLocalWorldSize);
  CHECK(assign_ranks({{{0}, "a", kMaxWorldSize}}).has_value());
  CHECK(assign_ranks({{{0}, "a", kMaxWorldSize}, {{1}, "a", 1}}).error() ==
        RanksError::BadLocalWorldSize);
  for (const auto error :
       {RanksError::NoNodes, RanksError::NotAPermutation, RanksError::BadLocalWorldSize})
    CHECK_FALSE(describe(error).empty());
}

TEST_CASE("ranks: global ranks and ranks within each role are permutations", "[unit][agent]") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    testing::Prng prng(seed);
    std::vector<RoleInfo> nodes;
    const int count = 1 + static_cast<int>(prng.below(12));
    for (int i = 0; i < count; ++i)
      nodes.push_back(
          {{i}, std::string(1, "abc"[prng.below(3)]), 1 + static_cast<int>(prng.below(9))});
    const auto ranks = assign_ranks(nodes);
    REQUIRE(ranks.has_value());
    std::set<int> global;
    std::set<std::pair<std::string, int>> in_role;
    int world = 0;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      for (int local = 0; local < nodes[i].local_world_size; ++local, ++world) {
        const int rank = (*ranks)[i].global_rank(LocalRank{local}).value;
        const int role_rank = (*ranks)[i].role_rank(LocalRank{local});
        REQUIRE((rank >= 0 && rank < (*ranks)[i].world_size));
        REQUIRE((role_rank >= 0 && role_rank < (*ranks)[i].role_world_size));
        REQUIRE(global.insert(rank).second);
        REQUIRE(in_role.emplace(nodes[i].role, role_rank).second);
      }
    }
    REQUIRE(world == ranks->front().world_size);
  }
}

}  // namespace
}  // namespace muster
