// Real files, and a real process that is gone.
#include "agent/io/owned_name.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/support/temp_folder.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

struct OwnedNameTest : testing::TempFolder {
  /// A pipe, a directory, and one that holds `text` in a file below, all with names of this
  /// process.
  void leave(const std::string& text) const {
    ::mkfifo((dir / owned_name()).c_str(), 0600);
    fs::create_directories(dir / owned_name() / "attempt_0");
    const fs::path full = dir / owned_name() / "attempt_0";
    fs::create_directories(full);
    std::ofstream(full / "error.json") << text;
  }
  std::set<fs::path> names() const {
    std::set<fs::path> found;
    for (const auto& entry : fs::directory_iterator(dir))
      found.insert(entry.path());
    return found;
  }
};

/// A process that does it and ends; with 1 if it throws.
template <typename Work>
pid_t begin(const Work& work) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  try {
    work();
    std::_Exit(0);
  } catch (...) {
    std::_Exit(1);
  }
}

bool ended_well(pid_t pid) {
  int status = -1;
  return ::waitpid(pid, &status, 0) == pid && status == 0;
}

TEST_CASE_METHOD(OwnedNameTest, "owned_name: what living owners have is left alone",
                 "[unit][agent]") {
  leave("evidence");
  leave("");
  std::ofstream(dir / "muster_somebodyelses_of_any_kind") << "x";
  const auto before = names();
  CHECK(before.size() == 7);
  remove_what_dead_owners_left(dir);
  CHECK(names() == before);
}

TEST_CASE_METHOD(OwnedNameTest, "owned_name: what dead owners left goes, but not what they wrote",
                 "[unit][agent]") {
  const pid_t owner = begin([&] {
    leave("evidence");
    leave("");
    // A file of such a name is nobody's of ours.
    std::ofstream(dir / owned_name()) << "x";
  });
  REQUIRE(ended_well(owner));
  REQUIRE(names().size() == 7);
  remove_what_dead_owners_left(dir);
  const auto left = names();
  CHECK(left.size() == 2);
  for (const fs::path& path : left)
    CHECK((fs::is_regular_file(path) || fs::exists(path / "attempt_0/error.json")));
}

// Agents of one job on one machine begin at once, and each looks for what the last job has left.
TEST_CASE_METHOD(OwnedNameTest, "owned_name: several remove the same things at once",
                 "[unit][agent]") {
  for (int round = 0; round < 10; ++round) {
    const pid_t leaver = begin([&] {
      for (int i = 0; i < 20; ++i)
        leave("");
    });
    REQUIRE(ended_well(leaver));
    std::vector<pid_t> agents;
    for (int i = 0; i < 4; ++i)
      agents.push_back(begin([&] { remove_what_dead_owners_left(dir); }));
    for (const pid_t agent : agents)
      CHECK(ended_well(agent));
    CHECK(names().empty());
  }
}

}  // namespace
}  // namespace muster
