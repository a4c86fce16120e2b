// Reads and writes the recorded states of torch 2.13 (golden/ and reject/), without torch.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "pickle/writer.h"
#include "rendezvous/torchrun/state_codec.h"
#include "rendezvous/torchrun/state_rules.h"
#include "tests/support/state_twin.h"

namespace muster {
namespace {

const std::filesystem::path kFolder = MUSTER_RENDEZVOUS_GOLDENS;

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::map<std::string, std::string> texts(const char* folder) {
  std::map<std::string, std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder / folder))
    if (entry.path().extension() == ".b64") found[entry.path().stem()] = content(entry.path());
  return found;
}

void drop_iso(nlohmann::json& twin) {
  if (twin.is_object()) {
    twin.erase("iso");
    twin.erase("_extra_attributes");
  }
  for (auto& item : twin)
    if (item.is_structured()) drop_iso(item);
}

std::string rewritten(const std::string& text) {
  const auto bytes = base64_decode(text);
  REQUIRE(bytes.has_value());
  pickle::Graph graph;
  const auto root = pickle::read_pickle(*bytes, graph, StateRules());
  REQUIRE(root.has_value());
  const auto again = pickle::write_pickle(graph, *root);
  REQUIRE(again.has_value());
  return base64_encode(*again);
}

TEST_CASE("goldens: every recorded state decodes to its JSON twin", "[conformance][state_codec]") {
  const auto goldens = texts("golden");
  REQUIRE(goldens.size() == 25);
  int with_twin = 0;
  for (const auto& [name, text] : goldens) {
    INFO(name);
    const auto state = decode_state(text);
    REQUIRE(state.has_value());
    const auto twin_path = kFolder / "golden" / (name + ".json");
    if (!std::filesystem::exists(twin_path)) continue;
    ++with_twin;
    auto twin = nlohmann::json::parse(content(twin_path));
    if (twin.is_null()) {
      CHECK_FALSE(state->has_value());
      continue;
    }
    drop_iso(twin);
    REQUIRE(state->has_value());
    CHECK(testing::twin_of(**state) == twin);
    CHECK(testing::state_of_twin(twin).participants == (*state)->participants);
  }
  CHECK(with_twin == 22);
}

TEST_CASE("goldens: a decoded pickle is written again byte for byte, by the pickler's own rules",
          "[conformance][pickle]") {
  for (const auto& [name, text] : texts("golden")) {
    // r1 to r5 use other pickle protocols and other memos. The sentinel is no pickle.
    if (name == "00_sentinel" || (name[0] == 'r' && name[1] <= '5')) continue;
    INFO(name);
    CHECK(rewritten(text) == text);
  }
}

TEST_CASE("goldens: an encoded state has the same bytes as torch's", "[conformance][state_codec]") {
  // Some goldens are left out: which equal strings, nodes and times are the same object in the
  // writer depends on the history of its process, and is not part of a state.
  for (const char* name :
       {"01_empty", "02_one_participant_waiting", "03_left_again_empty", "04_three_with_deadline",
        "05_three_keep_alives", "06_three_complete", "07_three_complete_at_max",
        "08_redundancy_list", "11_single_complete", "12_closed", "13_heartbeat_microseconds",
        "15_300_participants", "16_1200_complete", "r6_extra_attribute"}) {
    INFO(name);
    const std::string text = content(kFolder / "golden" / (std::string(name) + ".b64"));
    const auto state = decode_state(text);
    REQUIRE(state.has_value());
    CHECK(encode_state(**state) == text);
  }
}

TEST_CASE("goldens: every recorded state is the same after it is encoded and decoded",
          "[conformance][state_codec]") {
  for (const auto& [name, text] : texts("golden")) {
    if (name == "00_sentinel") continue;
    INFO(name);
    const auto state = decode_state(text);
    REQUIRE(state.has_value());
    const std::string ours = encode_state(**state);
    const auto again = decode_state(ours);
    REQUIRE(again.has_value());
    CHECK(**again == **state);
    CHECK(encode_state(**again) == ours);
  }
}

TEST_CASE("goldens: every value of two recorded jobs decodes to its JSON twin",
          "[conformance][state_codec]") {
  int lines = 0;
  for (const char* name : {"live_restart.jsonl", "live_spare.jsonl"}) {
    std::ifstream file(kFolder / "golden" / name);
    for (std::string line; std::getline(file, line); ++lines) {
      auto recorded = nlohmann::json::parse(line);
      const std::string text = recorded["b64"];
      const auto state = decode_state(text);
      REQUIRE(state.has_value());
      auto twin = recorded["twin"];
      drop_iso(twin);
      CHECK((state->has_value() ? testing::twin_of(**state) : nlohmann::json()) == twin);
      if (state->has_value()) CHECK(rewritten(text) == text);
    }
  }
  CHECK(lines > 20);
}

TEST_CASE("goldens: invalid states are refused with the place and the reason",
          "[conformance][state_codec]") {
  const std::map<std::string, std::string> reasons{
      {"bad_base64", "not base64"},
      {"call_eval_inside_state", "the opcode 48, which is not allowed"},
      {"call_system", "the name posix.system is not allowed"},
      {"deep_tuples", "a tuple within a tuple"},
      {"doubling", "a tuple within a tuple"},
      {"empty", "empty"},
      {"huge_frame", "a frame longer than the rest"},
      {"huge_length", "truncated"},
      {"memo_missing", "memo 7 was never stored"},
      {"naive_heartbeat", "a time without a zone"},
      {"no_stop", "a frame longer than the rest"},
      {"not_a_state", "not a rendezvous state"},
      {"other_class", "the name collections.OrderedDict is not allowed"},
      {"participants_list", "participants is no dict"},
      {"round_string", "round is no integer"},
      {"stack_underflow", "stack underflow"},
      {"trailing_bytes", "bytes after the end"},
      {"truncated", "a frame longer than the rest"},
  };
  const auto rejects = texts("reject");
  CHECK(rejects.size() == reasons.size());
  for (const auto& [name, text] : rejects) {
    INFO(name);
    const auto state = decode_state(text);
    REQUIRE_FALSE(state.has_value());
    CHECK(state.error().reason == reasons.at(name));
    CHECK(state.error().offset <= text.size());
  }
}

}  // namespace
}  // namespace muster
