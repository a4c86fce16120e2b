#include "agent/core/strict_json.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

TEST_CASE("strict_json: valid JSON is not changed", "[unit][agent]") {
  for (const char* text :
       {"", "{}", R"({"a": [1, -2.5e3, true, null], "b": "x\"\\NaN"})", R"("😀 é -Infinity \u00e9")",
        "no JSON", R"("\)", R"("\u12)", R"("\ud83d\ude00")", "[1.2.3, 5ee]", "-"})
    CHECK(strict_json(text) == text);
}

TEST_CASE("strict_json: numbers that JSON does not have become null", "[unit][agent]") {
  CHECK(strict_json(R"({"NaN": NaN, "b": [Infinity,-Infinity], "c": 1e400, "d": -1e999})") ==
        R"({"NaN": null, "b": [null,null], "c": null, "d": null})");
}

TEST_CASE("strict_json: half a surrogate pair becomes the replacement character", "[unit][agent]") {
  CHECK(strict_json(R"("caf\udce9")") == R"("caf\ufffd")");
  CHECK(strict_json(R"("\ud83d\ud83d\ude00\ude00")") == R"("\ufffd\ud83d\ude00\ufffd")");
  CHECK(strict_json(R"("\ud83d)") == R"("\ufffd)");
  CHECK(strict_json(R"("\\ud83d")") == R"("\\ud83d")");  // A backslash, and no escape.
}

}  // namespace
}  // namespace muster
