// Plays the scenarios in the folders beside this file. MUSTER_REWRITE=1 writes the actual output
// into the files.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <catch2/catch.hpp>

#include "tests/scenarios/rendezvous_play.h"
#include "tests/scenarios/supervision_play.h"

namespace muster {
namespace {

const std::filesystem::path kFolder = MUSTER_SCENARIOS;

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The same text, with the actual output of its commands in place of the expected output.
template <typename Play>
std::string played(const std::string& text) {
  Play play;
  std::istringstream in(text);
  std::string out;
  std::vector<std::string> said;
  bool expectations = false;
  for (std::string line; std::getline(in, line);) {
    if (line == "----") {
      expectations = true;
      out += line + "\n";
      for (const std::string& one : said)
        out += one + "\n";
      said.clear();
      continue;
    }
    if (line.empty()) expectations = false;
    if (expectations) continue;  // The old output is replaced.
    out += line + "\n";
    if (line.empty() || line[0] == '#') continue;
    const auto more = play.command(line);
    said.insert(said.end(), more.begin(), more.end());
  }
  CHECK(said.empty());  // Fails if no "----" follows the last commands.
  return out;
}

template <typename Play>
void play_all(const std::string& folder) {
  std::set<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder / folder))
    if (entry.path().extension() == ".txt") files.insert(entry.path());
  REQUIRE_FALSE(files.empty());
  for (const auto& path : files) {
    DYNAMIC_SECTION(path.stem().string()) {
      const std::string expected = content(path);
      const std::string actual = played<Play>(expected);
      CHECK(actual.find("not understood") == std::string::npos);
      if (std::getenv("MUSTER_REWRITE") != nullptr)
        std::ofstream(path) << actual;
      else
        CHECK(actual == expected);
    }
  }
}

TEST_CASE("scenarios: rendezvous", "[scenarios][rendezvous]") {
  play_all<testing::RendezvousPlay>("rendezvous");
}

TEST_CASE("scenarios: supervision", "[scenarios][agent]") {
  play_all<testing::SupervisionPlay>("supervision");
}

}  // namespace
}  // namespace muster
