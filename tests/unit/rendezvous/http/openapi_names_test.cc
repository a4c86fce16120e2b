// Tests that openapi.json lists each name that an event may have.
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "rendezvous/http/page_assets.h"
#include "rendezvous/rounds/run_history.h"

namespace muster::http::testing {
namespace {

using Names = std::vector<std::string>;

// The names of all values of an enumeration: to_string() has "unknown" for what is none.
template <typename Enumeration>
Names names_of() {
  Names names;
  for (int value = 0; to_string(static_cast<Enumeration>(value)) != "unknown"; ++value)
    names.emplace_back(to_string(static_cast<Enumeration>(value)));
  return names;
}

Names described(const std::string& field) {
  const auto asset = find_asset("/api/v1/openapi.json");
  REQUIRE(asset.has_value());
  const auto json = nlohmann::json::parse(asset->content);
  return json.at("components")
      .at("schemas")
      .at("Event")
      .at("properties")
      .at(field)
      .at("enum")
      .get<Names>();
}

}  // namespace

TEST_CASE("http: the description of the API has each kind of event and each cause of a restart",
          "[unit][http]") {
  CHECK(described("kind") == names_of<RunEvent::Kind>());
  CHECK(described("cause") == names_of<RestartCause>());
}

}  // namespace muster::http::testing
