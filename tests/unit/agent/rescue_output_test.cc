// Uses real pipes and files, and the real child processes that copy.
#include "agent/posix/rescue_output.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <string>

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

TEST_CASE("rescue_output: the workers' pipes stay open until a process can be made",
          "[unit][agent]") {
  ::signal(SIGPIPE, SIG_IGN);
  const testing::TempFolder folder;
  const std::string file = folder.dir / "stdout.log";
  std::ofstream(file) << "before\n";
  std::array<int, 2> fds{};
  REQUIRE(::pipe2(fds.data(), O_CLOEXEC) == 0);
  OwnedFd worker(fds[1]);
  ::fcntl(fds[0], F_SETFL, O_NONBLOCK);
  std::vector<OutputReader> readers;
  readers.push_back({OwnedFd(fds[0]), file});
  OutputRescue rescue;
  rescue.add(std::move(readers));
  refuses_to_fork = true;
  rescue.begin();
  refuses_to_fork = false;
  CHECK(::write(worker.get(), "saved\n", 6) == 6);
  worker.reset();
  rescue.begin();
  while (::waitpid(-1, nullptr, 0) > 0) {
  }
  std::ifstream copied(file);
  CHECK(std::string(std::istreambuf_iterator<char>(copied), {}) == "before\nsaved\n");
}

}  // namespace
}  // namespace muster
