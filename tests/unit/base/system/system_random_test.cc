#include "base/system/system_random.h"

#include <array>
#include <set>

#include <catch2/catch.hpp>

namespace muster::testing {
namespace {

TEST_CASE("system random: up to the limit all bytes are filled", "[unit][net]") {
  std::array<std::uint8_t, kRandomBytesMax> bytes{};
  REQUIRE(fill_random(bytes));
  const std::set<std::uint8_t> different(bytes.begin(), bytes.end());
  CHECK(different.size() > 64);  // 162 different values are expected. Fewer than 65 never happen.
}

TEST_CASE("system random: more bytes than the kernel gives at once are refused", "[unit][net]") {
  std::array<std::uint8_t, kRandomBytesMax + 1> bytes{};
  CHECK_FALSE(fill_random(bytes));
}

TEST_CASE("system random: numbers differ", "[unit][net]") {
  std::set<std::uint64_t> numbers;
  for (int i = 0; i < 100; ++i)
    numbers.insert(random_number());
  CHECK(numbers.size() == 100);
}

}  // namespace
}  // namespace muster::testing
