// Real files, and a real process that is gone.
#include "agent/io/owned_name.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include <catch2/catch.hpp>

namespace muster {
namespace {

namespace fs = std::filesystem;

struct OwnedNameTest {
  OwnedNameTest() {
    std::string name = (fs::temp_directory_path() / "muster_owned_XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    dir = name;
  }
  ~OwnedNameTest() { fs::remove_all(dir); }
  OwnedNameTest(const OwnedNameTest&) = delete;
  OwnedNameTest& operator=(const OwnedNameTest&) = delete;

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
  fs::path dir;
};

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
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    leave("evidence");
    leave("");
    // A file of such a name is nobody's of ours.
    std::ofstream(dir / owned_name()) << "x";
    std::_Exit(0);
  }
  int status = -1;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  REQUIRE(status == 0);
  REQUIRE(names().size() == 7);
  remove_what_dead_owners_left(dir);
  const auto left = names();
  CHECK(left.size() == 2);
  for (const fs::path& path : left)
    CHECK((fs::is_regular_file(path) || fs::exists(path / "attempt_0/error.json")));
}

}  // namespace
}  // namespace muster
