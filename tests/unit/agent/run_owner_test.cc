#include "agent/core/run_owner.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

TEST_CASE("run_owner: a name tells its owner", "[unit][agent]") {
  for (const RunOwner& owner : {RunOwner{0, 1, 0}, RunOwner{(1U << 25) - 1, 4'194'304, 1},
                                RunOwner{12345, 4711, (std::uint64_t{1} << 35) - 1}}) {
    const std::string name = run_owner_name(owner, "abcd");
    CHECK(name.size() == 7 + kRunOwnerLetters + 4);
    CHECK(read_run_owner_name(name) == owner);
  }
}

TEST_CASE("run_owner: other names have none", "[unit][agent]") {
  const std::string name = run_owner_name({1, 2, 3}, "");
  CHECK_FALSE(read_run_owner_name(name).has_value());  // Without a suffix it is not ours.
  CHECK_FALSE(read_run_owner_name("").has_value());
  CHECK_FALSE(read_run_owner_name("muster_").has_value());
  CHECK_FALSE(read_run_owner_name("muster_abcdefgh").has_value());
  CHECK_FALSE(read_run_owner_name("muster_train-2026-11-21-a-long-name").has_value());
  CHECK_FALSE(read_run_owner_name("other_" + name.substr(7) + "abcd").has_value());
}

TEST_CASE("run_owner: places differ, and fit", "[unit][agent]") {
  CHECK(run_place("a boot:1") != run_place("a boot:2"));
  CHECK(run_place("another boot") < 1U << 25);
}

}  // namespace
}  // namespace muster
