// Uses real files, and real processes that own folders and end.
#include "agent/io/owned_folder.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
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

struct OwnedFolderTest : testing::TempFolder {
  /// Creates a folder that the caller owns, with a pipe and with `text` in a file below it.
  OwnedFd create(const std::string& text) const {
    const fs::path path = dir / owned_folder_name();
    Result<OwnedFd> owned = create_owned_folder(path);
    if (!owned) throw fs::filesystem_error("no folder", path, owned.error());
    fs::create_directories(path / "attempt_0");
    ::mkfifo((path / "timers").c_str(), 0600);
    std::ofstream(path / "attempt_0/error.json") << text;
    return std::move(*owned);
  }
  std::set<fs::path> names() const {
    std::set<fs::path> found;
    for (const auto& entry : fs::directory_iterator(dir))
      found.insert(entry.path());
    return found;
  }
};

/// Starts a process that runs `work` and exits; with 1 if `work` throws.
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

TEST_CASE_METHOD(OwnedFolderTest, "owned_folder: folders of living owners are left alone",
                 "[unit][agent]") {
  const OwnedFd one = create("evidence");
  const OwnedFd other = create("");
  const auto before = names();
  CHECK(before.size() == 2);
  remove_orphans_in(dir);
  CHECK(ended_well(begin([&] { remove_orphans_in(dir); })));
  CHECK(names() == before);
  struct stat info {};
  REQUIRE(::stat(before.begin()->c_str(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0700);
}

TEST_CASE_METHOD(
    OwnedFolderTest,
    "owned_folder: folders of dead owners are removed, except for those with files to keep",
    "[unit][agent]") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t owner = begin([&] {
    const OwnedFd one = create("evidence");
    const OwnedFd other = create("");
    if (::write(ends[1], "x", 1) == 1) ::pause();
  });
  char ready = 0;
  REQUIRE(::read(ends[0], &ready, 1) == 1);
  REQUIRE(names().size() == 2);
  remove_orphans_in(dir);
  CHECK(names().size() == 2);
  ::kill(owner, SIGKILL);
  REQUIRE_FALSE(ended_well(owner));
  remove_orphans_in(dir);
  const auto left = names();
  REQUIRE(left.size() == 1);
  CHECK(fs::exists(*left.begin() / "attempt_0/error.json"));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_CASE_METHOD(OwnedFolderTest, "owned_folder: other names, files and links are left alone",
                 "[unit][agent]") {
  const std::string letters(20, 'a');
  fs::create_directory(dir / "muster_somebodyelses_of_any_kind");
  fs::create_directory(dir / "muster_abcdefgh");                  // As mkdtemp names it.
  fs::create_directory(dir / ("muster_" + letters + "abcdefg"));  // As earlier versions named it.
  fs::create_directory(dir / ("other__" + letters));
  ::mkfifo((dir / ("muster_b" + letters.substr(1))).c_str(), 0600);
  std::ofstream(dir / ("muster_c" + letters.substr(1)));
  fs::create_directory(dir / "target");
  fs::create_directory_symlink(dir / "target", dir / ("muster_d" + letters.substr(1)));
  const auto before = names();
  CHECK(before.size() == 8);
  remove_orphans_in(dir);
  CHECK(names() == before);
  fs::create_directory(dir / ("muster_" + letters));  // Only this one is an orphan.
  remove_orphans_in(dir);
  CHECK(names() == before);
}

TEST_CASE_METHOD(OwnedFolderTest, "owned_folder: another user's folder is left alone",
                 "[unit][agent]") {
  const fs::path path = dir / owned_folder_name();
  fs::create_directory(path);
  if (::chown(path.c_str(), 65534, 65534) != 0) return;  // Only root can do this.
  remove_orphans_in(dir);
  CHECK(fs::exists(path));
}

TEST_CASE_METHOD(OwnedFolderTest, "owned_folder: a path that is taken is an error",
                 "[unit][agent]") {
  const fs::path path = dir / owned_folder_name();
  fs::create_directory(dir / "target");
  fs::create_directory_symlink(dir / "target", path);
  CHECK(create_owned_folder(path).error().value() == EEXIST);
  CHECK(fs::is_symlink(path));
  CHECK(create_owned_folder(dir / "none" / "x").error().value() == ENOENT);
}

// hugetlbfs stands for each file system that other machines may share.
TEST_CASE_METHOD(OwnedFolderTest, "owned_folder: without locks, no folder is removed",
                 "[unit][agent]") {
  enum : int { Skipped = 3, Wrong = 4 };
  const pid_t pid = begin([&] {
    const std::string place = dir;
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", place.c_str(), "hugetlbfs", 0, nullptr) != 0)
      std::_Exit(Skipped);
    create_owned_folder(dir / owned_folder_name()).value();  // Its owner ends here.
    remove_orphans_in(dir);
    if (names().size() != 1) std::_Exit(Wrong);
  });
  int status = -1;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == Skipped)
    WARN("hugetlbfs cannot be mounted here");
  else
    CHECK(WEXITSTATUS(status) == 0);
}

// The lock's descriptor is close-on-exec.
TEST_CASE_METHOD(OwnedFolderTest,
                 "owned_folder: a program that the owner has started does not count as its owner",
                 "[unit][agent]") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t owner = begin([&] {
    const OwnedFd folder = create("");
    const pid_t program = ::fork();
    if (program == 0) {
      ::close(ends[0]);
      ::close(ends[1]);
      ::execl("/bin/sleep", "sleep", "1000", nullptr);
      std::_Exit(1);
    }
    if (::write(ends[1], &program, sizeof program) != sizeof program) std::_Exit(1);
    ::pause();
  });
  pid_t program = 0;
  REQUIRE(::read(ends[0], &program, sizeof program) == sizeof program);
  const std::string name = "/proc/" + std::to_string(program) + "/comm";
  for (std::string comm; comm != "sleep";)
    std::getline(std::ifstream(name), comm);
  ::kill(owner, SIGKILL);
  REQUIRE_FALSE(ended_well(owner));
  remove_orphans_in(dir);
  CHECK(names().empty());
  ::kill(program, SIGKILL);
  ::close(ends[0]);
  ::close(ends[1]);
}

// The agents of one job on one machine start at once, and each removes what the last job has left.
TEST_CASE_METHOD(OwnedFolderTest, "owned_folder: several remove the same things at once",
                 "[unit][agent]") {
  for (int round = 0; round < 10; ++round) {
    const pid_t leaver = begin([&] {
      for (int i = 0; i < 20; ++i)
        create("");
    });
    REQUIRE(ended_well(leaver));
    std::vector<pid_t> agents;
    for (int i = 0; i < 4; ++i)
      agents.push_back(begin([&] { remove_orphans_in(dir); }));
    for (const pid_t agent : agents)
      CHECK(ended_well(agent));
    CHECK(names().empty());
  }
}

// Others scan all the time, also between the creation of a folder and its lock.
TEST_CASE_METHOD(OwnedFolderTest, "owned_folder: a scan never takes a folder that has an owner",
                 "[unit][agent]") {
  std::vector<pid_t> scanners;
  for (int i = 0; i < 3; ++i)
    scanners.push_back(begin([&] {
      for (;;)
        remove_orphans_in(dir);
    }));
  std::vector<pid_t> owners;
  for (int i = 0; i < 3; ++i)
    owners.push_back(begin([&] {
      for (int n = 0; n < 500; ++n) {
        const fs::path path = dir / owned_folder_name();
        const Result<OwnedFd> folder = create_owned_folder(path);
        if (!folder) std::_Exit(2);
        if (::mkdir((path / "run").c_str(), 0700) != 0) std::_Exit(3);
        ::usleep(50);
        struct stat opened {};
        struct stat named {};
        if (::fstat(folder->get(), &opened) != 0 || ::stat(path.c_str(), &named) != 0 ||
            opened.st_ino != named.st_ino || !fs::exists(path / "run"))
          std::_Exit(4);
        if (n % 2 == 0) fs::remove_all(path);  // The scanners remove the others.
      }
    }));
  for (const pid_t owner : owners)
    CHECK(ended_well(owner));
  for (const pid_t scanner : scanners) {
    ::kill(scanner, SIGKILL);
    CHECK_FALSE(ended_well(scanner));
  }
  // The scanners may have had no processor for a while, and one call removes only some orphans.
  for (std::size_t before = names().size() + 1; names().size() < before;) {
    before = names().size();
    remove_orphans_in(dir);
  }
  CHECK(names().empty());
}

}  // namespace
}  // namespace muster
