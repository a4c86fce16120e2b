// Uses real files. The storage hangs in a function that takes the place of open().
#include "agent/io/stack_files.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdarg>
#include <string>
#include <string_view>
#include <thread>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <catch2/catch.hpp>

#include "tests/support/temp_folder.h"

namespace muster {
namespace {

std::atomic<bool> storage_hangs = false;
std::atomic<int> hanging_threads = 0;

}  // namespace
}  // namespace muster

// Takes the place of the C library's function in this program.
extern "C" int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  if (std::string_view(path).find("/stacks.") != std::string_view::npos) {
    ++muster::hanging_threads;
    while (muster::storage_hangs)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --muster::hanging_threads;
  }
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

namespace muster {
namespace {

using namespace std::chrono_literals;

boost::asio::awaitable<void> collect(StackFiles& files, std::string dir) {
  std::vector<std::string> dirs;
  dirs.push_back(std::move(dir));
  co_await files.open(std::move(dirs));
  co_await files.close();
}

TEST_CASE("stack_files: storage that hangs blocks only one thread, also after many requests",
          "[unit][agent]") {
  const testing::TempFolder folder;
  boost::asio::io_context io{1};
  StackFiles files(1ms);
  const auto collect_once = [&] {
    boost::asio::co_spawn(io, collect(files, folder.dir), boost::asio::use_future);
    io.run();
    io.restart();
  };
  storage_hangs = true;
  for (int i = 0; i < 5; ++i) {
    collect_once();
    CHECK_THAT(files.problem(0), Catch::Contains("storage does not answer"));
  }
  const auto until = std::chrono::steady_clock::now() + 20s;
  while (hanging_threads == 0 && std::chrono::steady_clock::now() < until)
    std::this_thread::yield();
  CHECK(hanging_threads == 1);
  storage_hangs = false;
  while (hanging_threads != 0)
    std::this_thread::yield();
  do {  // The thread still closes its file.
    collect_once();
  } while (!files.problem(0).empty() && std::chrono::steady_clock::now() < until);
  CHECK(files.problem(0).empty());
}

}  // namespace
}  // namespace muster
