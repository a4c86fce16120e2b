#include "agent/core/string_template.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

std::string substituted(std::string_view text) {
  return safe_substitute(text, {{"local_rank", "3"}, {"empty", ""}});
}

// Every expected value is what CPython 3.11's string.Template(text).safe_substitute() returns.
TEST_CASE("string_template: names are replaced as Python replaces them", "[unit][agent]") {
  const std::pair<const char*, const char*> cases[] = {
      {"", ""},
      {"plain", "plain"},
      {"$local_rank", "3"},
      {"${local_rank}", "3"},
      {"a${local_rank}b$local_rank.c", "a3b3.c"},
      {"$local_rank$local_rank", "33"},
      {"[$empty]", "[]"},
      {"$$", "$"},
      {"$$$", "$$"},
      {"$$$$", "$$"},
      {"$$local_rank", "$local_rank"},
      {"$$${local_rank}", "$3"},
      {"$${local_rank}", "${local_rank}"},
  };
  for (const auto& [text, expected] : cases) {
    INFO(text);
    CHECK(substituted(text) == expected);
  }
}

TEST_CASE("string_template: unknown names are left as they are", "[unit][agent]") {
  for (const char* text : {"$",
                           "a$",
                           "$ ",
                           "$1",
                           "$-x",
                           "$(local_rank)",
                           "$local_rank_",
                           "$local_rank2",
                           "$LOCAL_RANK",
                           "${LOCAL_RANK}",
                           "$unknown",
                           "${unknown}",
                           "${}",
                           "${ local_rank}",
                           "${local_rank }",
                           "${local_rank",
                           "${local",
                           "${1}",
                           "{local_rank}",
                           "$\xc3\xa9t\xc3\xa9",
                           "%local_rank%"}) {
    INFO(text);
    CHECK(substituted(text) == text);
  }
}

TEST_CASE("string_template: a broken brace does not hide what follows", "[unit][agent]") {
  CHECK(substituted("${local_rank $local_rank}") == "${local_rank 3}");
  CHECK(substituted("${${local_rank}}") == "${3}");
  CHECK(substituted("$local_rank\xc3\xa9") == "3\xc3\xa9");
}

TEST_CASE("string_template: a value is not substituted again", "[unit][agent]") {
  CHECK(safe_substitute("<$local_rank>", {{"local_rank", "$local_rank$$"}}) == "<$local_rank$$>");
}

TEST_CASE("string_template: pieces keep the text that they stand for", "[unit][agent]") {
  CHECK(parse_template("a$$b${c}$d") ==
        std::vector<TemplatePiece>{{"a$b", ""}, {"${c}", "c"}, {"$d", "d"}});
  CHECK(parse_template("").empty());
}

}  // namespace
}  // namespace muster
