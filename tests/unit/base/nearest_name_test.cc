// "Did you mean": which name is near enough to a word with a typing error.

#include "base/nearest_name.h"

#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch.hpp>

namespace muster::testing {
namespace {

const std::vector<std::string_view> kNames{"--nproc-per-node", "--port", "status", "stop", "c10d"};

TEST_CASE("nearest name: a letter more, less, another, or two exchanged", "[unit][base]") {
  CHECK(nearest_name("--nporc-per-node", kNames) == "--nproc-per-node");
  CHECK(nearest_name("--nproc_per_nodes", kNames) == "--nproc-per-node");
  CHECK(nearest_name("stauts", kNames) == "status");
  CHECK(nearest_name("prot", kNames) == "--port");
  CHECK(nearest_name("stp", kNames) == "stop");
  CHECK(nearest_name("c01d", kNames) == "c10d");
}

TEST_CASE("nearest name: a word that is like no name has none", "[unit][base]") {
  for (const char* word : {"", "x", "--", "elephant", "--epochs", "of"}) {
    INFO(word);
    CHECK(nearest_name(word, kNames).empty());
    CHECK(did_you_mean(word, kNames).empty());
  }
  CHECK(nearest_name(std::string(65, 's'), std::vector<std::string_view>{}).empty());
  const std::string longest(65, 'a');
  CHECK(nearest_name(longest, std::vector<std::string_view>{longest}).empty());
}

TEST_CASE("nearest name: as the end of a sentence", "[unit][base]") {
  CHECK(did_you_mean("stauts", kNames) == " (did you mean status?)");
}

}  // namespace
}  // namespace muster::testing
