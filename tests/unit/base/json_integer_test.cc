#include "base/json_integer.h"

#include <cstdint>
#include <optional>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace muster {
namespace {

using Json = nlohmann::json;

template <typename Integer>
std::optional<Integer> read(const char* text) {
  return integer_of<Integer>(Json::parse(text));
}

TEST_CASE("json integer: only an integer that fits is read") {
  CHECK(read<int>("0") == 0);
  CHECK(read<int>("-1") == -1);
  CHECK(read<int>("2147483647") == 2147483647);
  CHECK(read<int>("-2147483648") == -2147483647 - 1);
  CHECK(read<int>("2147483648") == std::nullopt);
  CHECK(read<int>("-2147483649") == std::nullopt);
  CHECK(read<std::uint16_t>("65535") == 65535);
  CHECK(read<std::uint16_t>("65536") == std::nullopt);
  CHECK(read<std::uint16_t>("-1") == std::nullopt);
  CHECK(read<std::int64_t>("9223372036854775807") == INT64_MAX);
  CHECK(read<std::int64_t>("-9223372036854775808") == INT64_MIN);
  // get<std::int64_t>() would return negative numbers for both.
  CHECK(read<std::int64_t>("9223372036854775808") == std::nullopt);
  CHECK(read<std::int64_t>("18446744073709551615") == std::nullopt);
  CHECK(read<std::uint64_t>("18446744073709551615") == UINT64_MAX);
}

TEST_CASE("json integer: other values are none") {
  for (const char* text :
       {"1.0", "1e300", "-0.5", "18446744073709551616", "\"1\"", "null", "true", "[1]", "{}"}) {
    INFO(text);
    CHECK(read<std::int64_t>(text) == std::nullopt);
  }
}

TEST_CASE("json integer: both bounds belong to the range") {
  const auto within = [](const Json& json) { return integer_within(json, -2, 3); };
  CHECK(within(-3) == std::nullopt);
  CHECK(within(-2) == -2);
  CHECK(within(3) == 3);
  CHECK(within(4) == std::nullopt);
  CHECK(within(4U) == std::nullopt);
  CHECK(integer_within(nlohmann::ordered_json(5), 5, 9) == 5);
}

}  // namespace
}  // namespace muster
