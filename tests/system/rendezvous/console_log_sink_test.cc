#include "base/system/console_log_sink.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>

#include <catch2/catch.hpp>
#include <spdlog/spdlog.h>

#include "base/system/owned_fd.h"

namespace muster {
namespace {

constexpr int kPipeBytes = 4096;

/// A logger whose console is a pipe with room for one page.
struct PipeLog {
  PipeLog() {
    ::signal(SIGPIPE, SIG_IGN);
    std::array<int, 2> fds{};
    REQUIRE(::pipe2(fds.data(), O_CLOEXEC) == 0);
    reader = OwnedFd(fds[0]);
    const OwnedFd writer(fds[1]);
    REQUIRE(::fcntl(writer.get(), F_SETPIPE_SZ, kPipeBytes) == kPipeBytes);
    log = std::make_unique<spdlog::logger>("test", std::make_shared<ConsoleLogSink>(writer.get()));
    log->set_pattern("%v");
  }
  /// Reads until the text ends with `end`.
  std::string read_until(const std::string& end) {
    std::string text;
    std::array<char, 65536> piece{};
    while (!text.ends_with(end)) {
      const ssize_t n = ::read(reader.get(), piece.data(), piece.size());
      if (n <= 0) break;
      text.append(piece.data(), static_cast<std::size_t>(n));
    }
    return text;
  }
  OwnedFd reader;
  std::unique_ptr<spdlog::logger> log;
};

std::string lines(int from, int to) {
  std::string text;
  for (int i = from; i < to; ++i)
    text += "line " + std::to_string(i) + "\n";
  return text;
}

}  // namespace

TEST_CASE("console log: a line that the console takes is written by the caller", "[unit][log]") {
  PipeLog pipe;
  pipe.log->info("first");
  ::fcntl(pipe.reader.get(), F_SETFL, O_NONBLOCK);  // A line that comes later would be missing.
  CHECK(pipe.read_until("first\n") == "first\n");
}

TEST_CASE("console log: a reader that does not read blocks no caller and misses no line",
          "[unit][log]") {
  constexpr int kLines = 20'000;  // Far more than the pipe takes.
  PipeLog pipe;
  for (int i = 0; i < kLines; ++i)
    pipe.log->info("line {}", i);
  CHECK(pipe.read_until("line 19999\n") == lines(0, kLines));
  pipe.log->info("line {}", kLines);
  CHECK(pipe.read_until("\n") == lines(kLines, kLines + 1));
}

TEST_CASE("console log: a line says how much is missing", "[unit][log]") {
  PipeLog pipe;
  const std::string line(999, 'x');
  for (std::size_t bytes = 0; bytes < 2 * LogConsole::kMaxKeptBytes; bytes += line.size() + 1)
    pipe.log->info(line);
  const std::string text = pipe.read_until("could not be written]\n");
  CHECK_THAT(text, Catch::Contains("\n[muster: "));
  CHECK(text.size() > LogConsole::kMaxKeptBytes);
  CHECK(text.size() < LogConsole::kMaxKeptBytes * 3 / 2);
  pipe.log->info("after");
  CHECK(pipe.read_until("after\n") == "after\n");
}

TEST_CASE("console log: a reader that ends costs the lines only", "[unit][log]") {
  PipeLog pipe;
  for (int i = 0; i < 5'000; ++i)
    pipe.log->info("line {}", i);
  pipe.reader = OwnedFd();
  pipe.log->info("nobody reads this");
  pipe.log->flush();
}

TEST_CASE("console log: flush() waits for a reader", "[unit][log]") {
  PipeLog pipe;
  for (int i = 0; i < 2'000; ++i)
    pipe.log->info("line {}", i);
  std::string text;
  std::thread reader([&] { text = pipe.read_until("line 1999\n"); });
  pipe.log->flush();
  pipe.log.reset();  // Ends the sink's thread: all lines are in the pipe.
  reader.join();
  CHECK(text == lines(0, 2'000));
}

}  // namespace muster
