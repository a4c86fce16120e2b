#include "base/json_fields.h"

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace muster::testing {

struct Leaf {
  std::string name;
  std::optional<int> size;
};

struct Tree {
  enum class Kind { Oak, Elm };
  Kind kind = Kind::Oak;
  std::string text;
  std::string key;
  std::string bytes;
  bool tall = false;
  bool old = false;
  std::int64_t age = 0;
  int rings = 0;
  Duration wait{};
  double height = 0;
  std::optional<Leaf> first;
  std::optional<Leaf> last;
  std::vector<Leaf> leaves;
};

constexpr std::array<std::string_view, 2> kTrees = {"oak", "elm"};

std::string first_three(const std::string& text) {
  return text.substr(0, 3);
}

template <typename V>
void fields(V& v, Of<V, Leaf>& leaf) {
  v.text("name", leaf.name, 8);
  v.optional_number("size", leaf.size, 1);
}

template <typename V>
void fields(V& v, Of<V, Tree>& tree) {
  v.one_of("kind", tree.kind, kTrees);
  v.text("text", tree.text, {16, first_three});
  v.optional_hex("key", tree.key, 4);
  v.base64("bytes", tree.bytes, 4);
  v.flag("tall", tree.tall);
  v.optional_flag("old", tree.old);
  v.number("age", tree.age, -1);
  v.optional_number("rings", tree.rings, 1, 100);
  v.time("wait_ns", tree.wait);
  v.real("height", tree.height, 1e3);
  v.optional_object("first", tree.first);
  v.object_or_null("last", tree.last);
  v.each("leaves", tree.leaves, 2, [](auto& each, auto& leaf) { fields(each, leaf); });
  v.check(tree.age < 1'000, "age", "too old");
}

namespace {

std::string written(const Tree& tree,
                    JsonWriter::Characters characters = JsonWriter::Characters::Utf8) {
  std::string out;
  JsonWriter writer(out, characters);
  fields(writer, tree);
  writer.end();
  return out;
}

/// The error as text; empty: `tree` has been read.
std::string read(const std::string& text, Tree& tree) {
  const auto json = JsonReader::Json::parse(text);
  std::optional<JsonFieldError> error;
  JsonReader reader(json, error);
  fields(reader, tree);
  return error ? describe(*error) : "";
}

const Tree kFull{.kind = Tree::Kind::Elm,
                 .text = "abcdef",
                 .key = "00ff",
                 .bytes = "12345",
                 .tall = true,
                 .old = true,
                 .age = -1,
                 .rings = 7,
                 .wait = Duration(-5),
                 .height = 2.5,
                 .first = Leaf{"a", 3},
                 .last = Leaf{"b", std::nullopt},
                 .leaves = {{"c", 1}, {"d", 2}, {"e", 3}}};
const std::string kFullText =
    R"({"kind":"elm","text":"abc","key":"00ff","bytes":"MTIzNA==","tall":true,"old":true,"age":-1,)"
    R"("rings":7,"wait_ns":0,"height":2.5,"first":{"name":"a","size":3},"last":{"name":"b"},)"
    R"("leaves":[{"name":"c","size":1},{"name":"d","size":2}]})";
const std::string kBareText =
    R"({"kind":"oak","text":"","bytes":"","tall":false,"age":0,"wait_ns":0,"height":0.0,)"
    R"("last":null,"leaves":[]})";

}  // namespace

TEST_CASE("json fields: one description writes and reads", "[unit][base]") {
  CHECK(written(kFull) == kFullText);
  CHECK(written(Tree{}) == kBareText);
  for (const std::string& text : {kFullText, kBareText}) {
    Tree tree;
    REQUIRE(read(text, tree).empty());
    CHECK(written(tree) == text);
  }
}

TEST_CASE("json fields: the order does not matter, unknown fields are ignored, null is missing",
          "[unit][base]") {
  auto json = JsonReader::Json::parse(kFullText);  // Sorted by name.
  json["later"] = {1, 2};
  json["first"] = nullptr;
  json["rings"] = nullptr;
  Tree tree;
  REQUIRE(read(json.dump(), tree).empty());
  CHECK_FALSE(tree.first);
  CHECK(tree.rings == 0);
}

TEST_CASE("json fields: each wrong field is named with what is wanted", "[unit][base]") {
  using Json = JsonReader::Json;
  const std::vector<std::pair<Json, std::string>> wrong = {
      {{{"kind", "ash"}}, "field kind: \"ash\" is none of: oak, elm"},
      {{{"text", 7}}, "field text: a text is wanted, this is: number"},
      {{{"text", std::string(17, 'x')}}, "field text: longer than 16 bytes"},
      {{{"key", "00fg"}}, "field key: not 4 hexadecimal digits"},
      {{{"key", "00f"}}, "field key: not 4 hexadecimal digits"},
      {{{"bytes", "="}}, "field bytes: not base64"},
      {{{"bytes", std::string(12, 'A')}}, "field bytes: longer than 8 bytes"},
      {{{"tall", 1}}, "field tall: true or false is wanted, this is: number"},
      {{{"old", "yes"}}, "field old: true or false is wanted, this is: string"},
      {{{"age", -2}}, "field age: -2 is not within -1 to 9223372036854775807"},
      {{{"age", 1.5}}, "field age: a whole number is wanted, this is: number"},
      {{{"age", 1'000}}, "field age: too old"},
      {{{"rings", 101}}, "field rings: 101 is not within 1 to 100"},
      {{{"wait_ns", -1}}, "field wait_ns: -1 is not within 0 to 9223372036854775807"},
      {{{"height", "tall"}}, "field height: a number is wanted, this is: string"},
      {{{"height", -1e4}}, "field height: -10000.0 is too large"},
      {{{"first", 3}}, "field first: an object is wanted, this is: number"},
      {{{"first", Json::object()}}, "field first.name: missing"},
      {{{"last", {{"name", "b"}, {"size", 0}}}},
       "field last.size: 0 is not within 1 to 2147483647"},
      {{{"leaves", "none"}}, "field leaves: a list is wanted, this is: string"},
      {{{"leaves", {1}}}, "field leaves: a list of objects is wanted, one element is: number"},
      {{{"leaves", {1, 2, 3}}}, "field leaves: more than 2 elements"},
      {{{"leaves", {{{"name", "c"}}, {{"name", "123456789"}}}}},
       "field leaves[1].name: longer than 8 bytes"},
  };
  for (const auto& [change, error] : wrong) {
    auto json = Json::parse(kFullText);
    json.update(change);
    Tree tree;
    CHECK(read(json.dump(), tree) == error);
  }
  for (const char* required :
       {"kind", "text", "bytes", "tall", "age", "wait_ns", "height", "last", "leaves"}) {
    auto json = Json::parse(kFullText);
    json.erase(required);
    Tree tree;
    CHECK(read(json.dump(), tree) == std::string("field ") + required + ": missing");
  }
}

TEST_CASE("json fields: any text is written as valid JSON", "[unit][base]") {
  Tree tree;
  tree.first = Leaf{"\"\\\n\xff\xc3\xa9", std::nullopt};
  CHECK(written(tree).find("{\"name\":\"\\\"\\\\\\n\xef\xbf\xbd\xc3\xa9\"}") != std::string::npos);
  CHECK(written(tree, JsonWriter::Characters::Ascii).find(R"({"name":"\"\\\n\ufffd\u00e9"})") !=
        std::string::npos);
}

}  // namespace muster::testing
