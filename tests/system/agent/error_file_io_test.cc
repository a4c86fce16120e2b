#include "agent/io/error_file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include <catch2/catch.hpp>

#include "tests/support/temp_folder.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

struct ErrorFileIoTest : testing::TempFolder {
  static std::string read(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  std::size_t entries() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(dir), fs::directory_iterator{}));
  }
};

TEST_CASE_METHOD(ErrorFileIoTest, "error_file_io: a file is replaced, and keeps its mode",
                 "[unit][agent]") {
  const fs::path file = dir / "report.json";
  CHECK_FALSE(write_whole_file(file, "one"));
  CHECK(read(file) == "one");
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  std::ifstream reader(file);
  CHECK_FALSE(write_whole_file(file, "two"));
  CHECK(read(file) == "two");
  CHECK(fs::status(file).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
  std::string old;
  reader >> old;
  CHECK(old == "one");  // A reader that had the file open sees the whole old text.
  CHECK(entries() == 1);
}

TEST_CASE_METHOD(ErrorFileIoTest, "error_file_io: a link stays a link, and its target is written",
                 "[unit][agent]") {
  fs::create_directory(dir / "there");
  const fs::path target = dir / "there" / "target";
  SECTION("the target exists") {
    write(target, "old");
  }
  SECTION("the target does not exist") {}
  fs::create_symlink("there/target", dir / "link");
  CHECK_FALSE(write_whole_file(dir / "link", "new"));
  CHECK(fs::is_symlink(dir / "link"));
  CHECK(read(target) == "new");
}

TEST_CASE_METHOD(ErrorFileIoTest,
                 "error_file_io: the reader of a FIFO gets the text, and the FIFO stays",
                 "[unit][agent]") {
  const fs::path fifo = dir / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  const std::string text(300'000, 'x');  // More than the FIFO holds: the writer waits.
  const int fd = ::open(fifo.c_str(), O_RDONLY | O_NONBLOCK);
  REQUIRE(fd >= 0);
  REQUIRE(::fcntl(fd, F_SETFL, 0) == 0);
  std::string got;
  std::thread reader([&] {
    std::array<char, 65536> chunk;
    while (got.size() < text.size()) {
      const ssize_t n = ::read(fd, chunk.data(), chunk.size());
      if (n > 0) got.append(chunk.data(), static_cast<std::size_t>(n));
    }
  });
  CHECK_FALSE(write_whole_file(fifo, text));
  reader.join();
  ::close(fd);
  CHECK(got == text);
  CHECK(fs::is_fifo(fifo));
}

TEST_CASE_METHOD(ErrorFileIoTest,
                 "error_file_io: a FIFO without a reader is an error and does not block",
                 "[unit][agent]") {
  const fs::path fifo = dir / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(write_whole_file(fifo, "text").value() == ENXIO);
  CHECK(fs::is_fifo(fifo));
}

TEST_CASE_METHOD(ErrorFileIoTest, "error_file_io: a device stays a device", "[unit][agent]") {
  fs::create_symlink("/dev/null", dir / "null");
  CHECK_FALSE(write_whole_file(dir / "null", "text"));
  CHECK_FALSE(write_whole_file("/dev/null", "text"));
  CHECK(fs::is_character_file("/dev/null"));
  CHECK(fs::is_symlink(dir / "null"));
}

TEST_CASE_METHOD(ErrorFileIoTest, "error_file_io: an inherited descriptor is appended to",
                 "[unit][agent]") {
  const fs::path log = dir / "log";
  const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT, 0600);  // Not close-on-exec: inherited.
  REQUIRE(::write(fd, "before ", 7) == 7);
  const std::string number = std::to_string(fd);
  SECTION("by its number") {
    CHECK_FALSE(write_whole_file("/dev/fd/" + number, "text"));
  }
  SECTION("behind a link, as /dev/stdout is one") {
    fs::create_symlink("/proc/self/fd/" + number, dir / "stdout");
    CHECK_FALSE(write_whole_file(dir / "stdout", "text"));
  }
  CHECK(read(log) == "before text");
  ::close(fd);
}

TEST_CASE_METHOD(ErrorFileIoTest,
                 "error_file_io: a file in a directory that is not writable is written in place",
                 "[unit][agent]") {
  const uid_t nobody = 65534;  // Root becomes this user for the test: root may write anywhere.
  const bool is_root = ::geteuid() == 0;
  write(dir / "file", "old and longer");
  if (is_root) REQUIRE(::chown((dir / "file").c_str(), nobody, nobody) == 0);
  fs::permissions(dir, fs::perms::owner_read | fs::perms::owner_exec | fs::perms::group_exec |
                           fs::perms::others_exec);
  if (is_root) REQUIRE(::seteuid(nobody) == 0);
  const auto error = write_whole_file(dir / "file", "new");
  if (is_root) REQUIRE(::seteuid(0) == 0);
  fs::permissions(dir, fs::perms::owner_all);
  CHECK_FALSE(error);
  CHECK(read(dir / "file") == "new");
  CHECK(entries() == 1);
}

TEST_CASE_METHOD(ErrorFileIoTest,
                 "error_file_io: what another user has put into a folder like /tmp is not used",
                 "[unit][agent]") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can make another user's files");
    return;
  }
  constexpr uid_t kOther = 65534;
  const fs::path shared = dir / "shared";
  const fs::path path = shared / "report.json";
  fs::create_directory(shared);
  REQUIRE(::chmod(shared.c_str(), 01777) == 0);
  write(dir / "victim", "of this user");
  SECTION("a link") {
    fs::create_symlink("../victim", path);
  }
  SECTION("a link to nothing") {
    fs::create_symlink("../new", path);
  }
  SECTION("a link to a descriptor") {
    fs::create_symlink("/proc/self/fd/2", path);
  }
  SECTION("a file") {
    write(path, "of the other user");
  }
  SECTION("a FIFO") {
    REQUIRE(::mkfifo(path.c_str(), 0666) == 0);
  }
  REQUIRE(::lchown(path.c_str(), kOther, kOther) == 0);
  CHECK(write_whole_file(path, "text").value() == EACCES);
  CHECK(read(dir / "victim") == "of this user");
  CHECK_FALSE(fs::exists(dir / "new"));
  CHECK(entries() == 2);
  CHECK(std::distance(fs::directory_iterator(shared), fs::directory_iterator{}) == 1);
  // Links of the folder's owner and of this user are followed, as by the kernel.
  REQUIRE(::lchown(shared.c_str(), kOther, kOther) == 0);
  if (fs::is_symlink(path) && fs::is_regular_file(path)) {
    CHECK_FALSE(write_whole_file(path, "text"));
    CHECK(fs::is_symlink(path));
  }
}

TEST_CASE_METHOD(ErrorFileIoTest,
                 "error_file_io: a second name of a file is replaced, and the file stays",
                 "[unit][agent]") {
  fs::create_directory(dir / "shared");
  write(dir / "victim", "of this user");
  fs::create_hard_link(dir / "victim", dir / "shared" / "report.json");
  CHECK_FALSE(write_whole_file(dir / "shared" / "report.json", "text"));
  CHECK(read(dir / "victim") == "of this user");
  CHECK(read(dir / "shared" / "report.json") == "text");
}

TEST_CASE_METHOD(ErrorFileIoTest, "error_file_io: another user's file stays that user's",
                 "[unit][agent]") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can make another user's files");
    return;
  }
  write(dir / "report.json", "old and longer");
  REQUIRE(::chown((dir / "report.json").c_str(), 65534, 65534) == 0);
  CHECK_FALSE(write_whole_file(dir / "report.json", "new"));
  CHECK(read(dir / "report.json") == "new");
  struct stat info {};
  REQUIRE(::stat((dir / "report.json").c_str(), &info) == 0);
  CHECK(info.st_uid == 65534);
}

TEST_CASE_METHOD(ErrorFileIoTest,
                 "error_file_io: a file that cannot be written has an error with the reason",
                 "[unit][agent]") {
  CHECK(write_whole_file(dir, "text").value() == EISDIR);
  CHECK(write_whole_file(dir / "no" / "such", "text").value() == ENOENT);
  CHECK(entries() == 0);
}

}  // namespace
}  // namespace muster
