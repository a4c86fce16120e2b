#include "rendezvous/access/run_tokens.h"

#include <string>

#include <catch2/catch.hpp>

#include "rendezvous/rounds/limits.h"

namespace muster {
namespace {

std::string at_least_four(std::string_view token) {
  return token.size() < 4 ? "it is too short" : "";
}

RunTokenTexts read(std::string_view text) {
  const auto tokens = parse_run_tokens(text, at_least_four);
  INFO((tokens ? "" : tokens.error().reason));
  REQUIRE(tokens.has_value());
  return *tokens;
}

std::string refusal(std::string_view text) {
  const auto tokens = parse_run_tokens(text, at_least_four);
  REQUIRE_FALSE(tokens.has_value());
  return tokens.error().reason;
}

TEST_CASE("run tokens: a line for each run", "[unit][rendezvous]") {
  CHECK(read("").empty());
  CHECK(read("# nobody\n\n  \n").empty());
  CHECK(read("a secret\n") == RunTokenTexts{{"a", "secret"}});
  CHECK(read("# mine\n  my run \t other\r\nb word") ==
        RunTokenTexts{{"my run", "other"}, {"b", "word"}});
}

TEST_CASE("run tokens: an error names the line, and shows no token", "[unit][rendezvous]") {
  CHECK(refusal("a secret\nlonely\n") ==
        "line 2: it has one word only; a line is a run id, white space, and the run's token");
  CHECK(refusal("\na abc\n") == "line 2: it is too short");
  CHECK(refusal("\xef\xbb\xbf"
                "a secret\n")
            .find("byte order mark") != std::string::npos);
  CHECK(refusal("a secret\na hidden\n") == "line 2: run 'a' has a token already, in a line above");
  CHECK(refusal(std::string(kMaxRunIdBytes + 1, 'a') + " secret").find("longer than 1024 bytes") !=
        std::string::npos);
  std::string many;
  for (std::size_t i = 0; i <= kMaxRunTokens; ++i)
    many += "run" + std::to_string(i) + " secret\n";
  CHECK(refusal(many).find("line 10001: no more than 10000 runs") == 0);
}

}  // namespace
}  // namespace muster
