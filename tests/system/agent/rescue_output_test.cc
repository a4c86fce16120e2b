// Uses real pipes and files, and the real child processes that copy.
#include "agent/posix/rescue_output.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/support/temp_folder.h"

namespace muster {
namespace {

std::atomic<bool> refuses_to_fork = false;

}  // namespace
}  // namespace muster

// Takes the place of the C library's function in this program. A real limit of processes does not
// apply to root.
extern "C" pid_t fork() noexcept {
  if (muster::refuses_to_fork) {
    errno = EAGAIN;
    return -1;
  }
  static const auto real_fork = reinterpret_cast<pid_t (*)()>(::dlsym(RTLD_NEXT, "fork"));
  return real_fork();
}

namespace muster {
namespace {

struct WorkerStream {
  WorkerStream() {
    std::array<int, 2> fds{};
    REQUIRE(::pipe2(fds.data(), O_CLOEXEC | O_NONBLOCK) == 0);
    reader = OwnedFd(fds[0]);
    worker = OwnedFd(fds[1]);
  }
  void fill(const std::string& bytes) const {
    while (::write(worker.get(), bytes.data(), bytes.size()) > 0) {
    }
  }
  OwnedFd reader;
  OwnedFd worker;
};

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("rescue_output: the workers' pipes stay open until a process can be made",
          "[unit][agent]") {
  ::signal(SIGPIPE, SIG_IGN);
  const testing::TempFolder folder;
  const std::string file = folder.dir / "stdout.log";
  std::ofstream(file) << "before\n";
  WorkerStream stream;
  std::vector<OutputReader> readers;
  readers.push_back({std::move(stream.reader), file});
  OutputRescue rescue;
  rescue.add(std::move(readers));
  refuses_to_fork = true;
  rescue.begin();
  refuses_to_fork = false;
  CHECK(::write(stream.worker.get(), "saved\n", 6) == 6);
  stream.worker.reset();
  rescue.begin();
  while (::waitpid(-1, nullptr, 0) > 0) {
  }
  CHECK(contents(file) == "before\nsaved\n");
}

TEST_CASE("rescue_output: a log file that is renamed gets the bytes, and no other file",
          "[unit][agent]") {
  const testing::TempFolder folder;
  const std::string file = folder.dir / "stdout.log";
  const std::string renamed = folder.dir / "stdout.log.1";
  std::ofstream(file) << "before\n";
  OwnedFd handle(::open(file.c_str(), O_PATH | O_CLOEXEC));
  std::filesystem::rename(file, renamed);
  SECTION("no file has the old name") {}
  SECTION("another file has the old name") {
    std::ofstream(file) << "other\n";
  }
  const bool has_other = std::filesystem::exists(file);
  WorkerStream stream;
  REQUIRE(::write(stream.worker.get(), "saved\n", 6) == 6);
  stream.worker.reset();
  std::vector<OutputReader> readers;
  readers.push_back({std::move(stream.reader), file, std::move(handle)});
  OutputRescue rescue;
  rescue.add(std::move(readers));
  rescue.begin();
  while (::waitpid(-1, nullptr, 0) > 0) {
  }
  CHECK(contents(renamed) == "before\nsaved\n");
  CHECK(contents(file) == (has_other ? "other\n" : ""));
}

TEST_CASE("rescue_output: a worker that floods a slow console leaves the others their turn",
          "[unit][agent]") {
  ::signal(SIGPIPE, SIG_IGN);
  constexpr int kFloodBytes = 1 << 20;  // The pipe never becomes empty between two reads below.
  constexpr std::size_t kMaxBefore = 1 << 20;
  const testing::TempFolder folder;
  const std::string fifo = folder.dir / "console";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  const OwnedFd console(::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  WorkerStream flood;
  WorkerStream other;
  ::fcntl(flood.worker.get(), F_SETPIPE_SZ, kFloodBytes);
  const std::string block(64 << 10, 'x');
  flood.fill(block);
  REQUIRE(::write(other.worker.get(), "saved", 5) == 5);
  std::vector<OutputReader> readers;
  readers.push_back({std::move(flood.reader), fifo});
  readers.push_back({std::move(other.reader), fifo});
  OutputRescue rescue;
  rescue.add(std::move(readers));
  REQUIRE(rescue.begin());
  std::string shown;
  std::array<char, 64 << 10> piece;
  while (shown.find("saved") == std::string::npos && shown.size() < kMaxBefore) {
    flood.fill(block);
    pollfd request{console.get(), POLLIN, 0};
    REQUIRE(::poll(&request, 1, 20'000) == 1);
    const ssize_t n = ::read(console.get(), piece.data(), piece.size());
    REQUIRE(n > 0);
    shown.append(piece.data(), static_cast<std::size_t>(n));
  }
  CHECK(shown.find("saved") != std::string::npos);
  for (const pid_t child : rescue.processes()) {  // It holds the pipes' writing ends, too.
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
}

}  // namespace
}  // namespace muster
