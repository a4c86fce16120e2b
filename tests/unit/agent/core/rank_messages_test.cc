#include "agent/core/rank_messages.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

TEST_CASE("rank messages: written as Python writes them", "[unit][agent]") {
  CHECK(encode_role_info({{3}, "default", 8}) ==
        R"({"role": "default", "rank": 3, "local_world_size": 8})");
  CHECK(encode_role_info({{0}, "M\xc3\xbcster \"q\"", 1}) ==
        R"({"role": "M\u00fcster \"q\"", "rank": 0, "local_world_size": 1})");
  CHECK(encode_assigned_ranks({{1}, 5, 0, 2}) == "[1, 5, 0, 2]");
}

TEST_CASE("rank messages: read in any order and spacing", "[unit][agent]") {
  const auto info = decode_role_info(R"({"local_world_size":2,"rank":1 , "role":"\u00fc","x":0})");
  REQUIRE(info.has_value());
  CHECK(*info == RoleInfo{{1}, "\xc3\xbc", 2});
  const auto ranks = decode_assigned_ranks("[0,2, 0 ,2]");
  REQUIRE(ranks.has_value());
  CHECK(*ranks == AssignedRanks{{0}, 2, 0, 2});
}

TEST_CASE("rank messages: a peer's malformed message is an error", "[unit][agent]") {
  for (const char* text : {"", "[]", "{}", R"({"role": 1, "rank": 0, "local_world_size": 1})",
                           R"({"role": "r", "rank": -1, "local_world_size": 1})",
                           R"({"role": "r", "rank": 0, "local_world_size": 0})",
                           R"({"role": "r", "rank": 0.5, "local_world_size": 1})",
                           R"({"role": "r", "rank": true, "local_world_size": 1})",
                           R"({"role": "r", "rank": 18446744073709551615, "local_world_size": 1})",
                           R"({"role": "r", "rank": 0, "local_world_size": 99999999999})"}) {
    INFO(text);
    CHECK(decode_role_info(text).has_error());
  }
  for (const char* text : {"", "{}", "[0, 1, 0]", "[0, 1, 0, 1, 0]", "[-1, 1, 0, 1]",
                           "[1, 1, 0, 1]", "[0, 1, 1, 1]", "[0, 0, 0, 0]", "[0, \"1\", 0, 1]"}) {
    INFO(text);
    CHECK(decode_assigned_ranks(text).has_error());
  }
}

TEST_CASE("rank messages: a static node's claim", "[unit][agent]") {
  const std::string text = encode_nodes_claim({12, {3}, "node \"a\""});
  CHECK(text == R"({"nnodes": 12, "rank": 3, "host": "node \"a\""})");
  const auto claim = decode_nodes_claim(text);
  REQUIRE(claim.has_value());
  CHECK(claim->nodes == 12);
  CHECK(claim->group_rank.value == 3);
  CHECK(claim->host == "node \"a\"");
  for (const char* bad :
       {"", "[]", "{}", R"({"nnodes": 0, "rank": 0, "host": "a"})",
        R"({"nnodes": 2, "rank": -1, "host": "a"})", R"({"nnodes": "2", "rank": 0, "host": "a"})",
        R"({"nnodes": 2, "rank": 0, "host": 5})", R"({"nnodes": 2, "rank": 0})"}) {
    INFO(bad);
    CHECK(decode_nodes_claim(bad).has_error());
  }
}

}  // namespace
}  // namespace muster
