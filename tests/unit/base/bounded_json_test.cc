#include "base/bounded_json.h"

#include <string>

#include <catch2/catch.hpp>

namespace muster {
namespace {

using Kind = JsonDefect::Kind;

std::optional<JsonDefect> defect_of(const std::string& text, const JsonLimits& limits = {9, 3}) {
  nlohmann::json value;
  return parse_bounded_json(text, limits, value);
}

TEST_CASE("bounded JSON: the value is what the library's own parser makes", "[unit][json]") {
  for (const char* text : {"null", "true", "-1", "18446744073709551615", "1.5", R"("a\u00e9\n")",
                           "[]", "{}", R"({"b":1,"a":[2,{"c":null}],"b":3})",
                           R"({"":{},"x":{"y":1,"":2,"y":[]}})", " [ 1 , 2 ] "}) {
    INFO(text);
    nlohmann::ordered_json value;
    REQUIRE_FALSE(parse_bounded_json(text, {.values = 9, .depth = 3}, value));
    CHECK(value == nlohmann::ordered_json::parse(text));
    CHECK(value.dump() == nlohmann::ordered_json::parse(text).dump());
  }
}

TEST_CASE("bounded JSON: values and levels have limits", "[unit][json]") {
  CHECK_FALSE(defect_of("[1,2,3,4,5,6,7,8]"));
  CHECK(defect_of("[1,2,3,4,5,6,7,8,9]")->kind == Kind::TooManyValues);
  CHECK_FALSE(defect_of(R"([[],{"a":{}},[]])"));
  CHECK(defect_of(R"([{"a":{"b":{}}}])")->kind == Kind::TooDeep);
  // Such a text would take much more memory, and a time that grows with its square.
  std::string objects = "[0";
  for (int i = 0; i < 300'000; ++i)
    objects += ",{}";
  CHECK(defect_of(objects, {100'000, 3})->kind == Kind::TooManyValues);
  CHECK(defect_of(std::string(1'000'000, '['))->kind == Kind::TooDeep);
}

TEST_CASE("bounded JSON: the time for an object does not grow with its square", "[unit][json]") {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i)
    text += "\"" + std::string(20, 'x') + std::to_string(i) + "\":0,";
  text += "\"last\":1}";
  nlohmann::ordered_json value;
  REQUIRE_FALSE(parse_bounded_json(text, {.values = 300'000, .depth = 3}, value));
  CHECK(value.size() == 200'001);
  CHECK(value.back() == 1);
}

TEST_CASE("bounded JSON: a text that ends too early is an error of its own", "[unit][json]") {
  const std::string whole = R"({"a": [1.5, "b\u00e9", true]})";
  for (std::size_t size = 0; size < whole.size(); ++size) {
    INFO(size);
    const auto defect = defect_of(whole.substr(0, size));
    REQUIRE(defect);
    CHECK(defect->kind == Kind::NotJson);
    CHECK(defect->cut_off);
  }
  for (const char* text : {"{]", "[1,2]x", "'a'", "[1e999]", "1e999", "\"\xff\"", "[nul]"}) {
    INFO(text);
    const auto defect = defect_of(text);
    REQUIRE(defect);
    CHECK(defect->kind == Kind::NotJson);
    CHECK_FALSE(defect->cut_off);
  }
}

}  // namespace
}  // namespace muster
