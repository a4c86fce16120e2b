#include "base/config_json.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/support/prng.h"

using namespace muster;

namespace {

const std::vector<ConfigKey> kKeys = {
    {"port", ConfigKind::Number},        {"max-keys", ConfigKind::Number},
    {"max-key-bytes", ConfigKind::Size}, {"http", ConfigKind::Text},
    {"bind", ConfigKind::Texts},         {"only-store", ConfigKind::Flag}};

ConfigFile decoded(std::string_view text) {
  return decode_config(text, kKeys);
}

std::string only_error(std::string_view text) {
  const ConfigFile file = decoded(text);
  REQUIRE(file.errors.size() == 1);
  return file.errors.front();
}

}  // namespace

TEST_CASE("config file: keys and values become the words of a command line", "[unit][config]") {
  const ConfigFile file = decoded(R"({
    "port": 29400, "http": "10.0.0.1:9400", "bind": ["::1", "127.0.0.1"], "only-store": true,
    "max-keys": 1e6})");
  CHECK(file.errors.empty());
  REQUIRE(file.entries.size() == 5);
  CHECK(file.entries[0].key == "port");
  CHECK(file.entries[0].values == std::vector<std::string>{"29400"});
  CHECK(file.entries[1].values == std::vector<std::string>{"10.0.0.1:9400"});
  CHECK(file.entries[2].values == std::vector<std::string>{"::1", "127.0.0.1"});
  CHECK(file.entries[3].key == "only-store");
  CHECK(file.entries[3].values.empty());
  CHECK(file.entries[4].values == std::vector<std::string>{"1e6"});
}

TEST_CASE("config file: a size is a number or a text", "[unit][config]") {
  const ConfigFile file = decoded(R"({"max-key-bytes": "16K"})");
  CHECK(file.errors.empty());
  REQUIRE(file.entries.size() == 1);
  CHECK(file.entries[0].values == std::vector<std::string>{"16K"});
  CHECK(decoded(R"({"max-key-bytes": 16384})").entries[0].values ==
        std::vector<std::string>{"16384"});
  CHECK(only_error(R"({"max-key-bytes": true})").find("number of bytes") != std::string::npos);
}

TEST_CASE("config file: a flag that is false is left out; an empty object is right",
          "[unit][config]") {
  CHECK(decoded(R"({"only-store": false})").entries.empty());
  CHECK(decoded(R"({"only-store": false})").errors.empty());
  CHECK(decoded("{}").errors.empty());
}

TEST_CASE("config file: a text may be a whole number, a list one text", "[unit][config]") {
  const ConfigFile file = decoded(R"({"http": 9400, "bind": "::1"})");
  CHECK(file.errors.empty());
  REQUIRE(file.entries.size() == 2);
  CHECK(file.entries[0].values == std::vector<std::string>{"9400"});
  CHECK(file.entries[1].values == std::vector<std::string>{"::1"});
}

TEST_CASE("config file: an error names the key, the value and what is allowed", "[unit][config]") {
  CHECK(only_error(R"({"port": "x"})") == R"(key "port": "x" is not a number)");
  CHECK(only_error(R"({"port": true})") == R"(key "port": true is not a number)");
  CHECK(only_error(R"({"port": null})") == R"(key "port": null is not a number)");
  CHECK(only_error(R"({"port": [1, 2]})") == R"(key "port": a list is not a number)");
  CHECK(only_error(R"({"port": {"a": 1}})") == R"(key "port": an object is not a number)");
  CHECK(only_error(R"({"http": 9.5})") == R"(key "http": 9.5 is not a text)");
  CHECK(only_error(R"({"only-store": 1})") == R"(key "only-store": 1 is not true or false)");
  CHECK(only_error(R"({"bind": ["::1", 4]})") ==
        R"(key "bind": 4 is not a text or a list of texts)");
  CHECK(only_error(R"({"bind": [["::1"]]})") ==
        R"(key "bind": a list is not a text or a list of texts)");
}

TEST_CASE("config file: an unknown key is refused with the nearest name", "[unit][config]") {
  CHECK(only_error(R"({"max_keys": 5})") ==
        R"(key "max_keys" is not known; did you mean "max-keys"?)");
  CHECK(only_error(R"({"--prot": 5})") == R"(key "--prot" is not known; did you mean "port"?)");
  CHECK(
      only_error(R"({"elephant": {"a": [1]}})") ==
      R"(key "elephant" is not known; keys are the long names of the options, without the hyphens in front)");
  CHECK(only_error("{\"a\\u0000\\n\": 1}").find("\\x00\\x0a") != std::string::npos);
}

TEST_CASE("config file: all errors are reported, not only the first", "[unit][config]") {
  CHECK(decoded(R"({"port": "x", "http": false, "port": 1})").errors.size() == 3);
}

TEST_CASE("config file: a file without a JSON object is refused with the place of the error",
          "[unit][config]") {
  CHECK(only_error("{\n  \"port\": 1,\n}") == "not JSON: line 3, column 1");
  CHECK(only_error("") == "not JSON: line 1, column 1");
  CHECK(only_error("{\"port\": 1} x") == "not JSON: line 1, column 13");
  CHECK(only_error("[1]").find("an object is wanted") == 0);
  CHECK(only_error("17").find("an object is wanted") == 0);
}

TEST_CASE("config file: its length and its lists are limited", "[unit][config]") {
  const std::string blanks(kMaxConfigBytes, ' ');
  CHECK(only_error("{}" + blanks) == "longer than 65536 bytes");
  std::string list = R"({"bind": [)";
  for (std::size_t i = 0; i <= kMaxConfigValues; ++i)
    list += i == 0 ? "\"::1\"" : ", \"::1\"";
  CHECK(only_error(list + "]}") == R"(key "bind": more than 256 values)");
}

TEST_CASE("config file: mutated files give entries of known keys, or errors", "[unit][config]") {
  testing::Prng prng(7);
  const std::string whole =
      R"({"port": 29400, "http": ":9", "bind": ["::1", "a"], "only-store": true, "max-keys": {}})";
  for (int round = 0; round < 20'000; ++round) {
    std::string text = whole;
    for (auto changes = 1 + prng.below(4); changes-- > 0;)
      text[static_cast<std::size_t>(prng.below(text.size()))] =
          static_cast<char>("{}[]\",:0a-\\ \n"[prng.below(13)]);
    const ConfigFile file = decoded(text);
    INFO(text);
    for (const ConfigEntry& entry : file.entries) {
      const bool known = entry.key == "port" || entry.key == "http" || entry.key == "bind" ||
                         entry.key == "only-store" || entry.key == "max-keys" ||
                         entry.key == "max-key-bytes";
      REQUIRE(known);
    }
    REQUIRE((!file.errors.empty() || file.entries.size() <= 5));
  }
}
