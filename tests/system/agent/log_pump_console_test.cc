// Log files whose console has no room while their disk is full, or while they are truncated.

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <thread>

#include "tests/system/agent/log_pump_fixture.h"

namespace muster {
namespace {

using testing::kPatience;
using testing::LogPumpTest;
using testing::write_all;
using namespace std::chrono_literals;

std::string numbered_lines(int begin, int end) {
  std::string lines;
  for (int i = begin; i < end; ++i)
    lines +=
        "line " + std::to_string(i) + std::string(static_cast<std::size_t>(i % 37), 'y') + "\n";
  return lines;
}

/// The first line that differs, as shown and as expected; empty: the texts are equal.
std::string difference(const std::string& shown, const std::string& expected) {
  std::istringstream left(shown);
  std::istringstream right(expected);
  std::string a, b;
  while (std::getline(left, a) && std::getline(right, b))
    if (a != b) return "shown: " + a + ", expected: " + b;
  return shown == expected ? "" : "the end is missing, or too much";
}

/// While it lives, no file can become larger than this.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit limit{bytes, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

/// A worker's log file is shown on a console that another worker has filled.
struct FullConsoleTest : LogPumpTest {
  FullConsoleTest() {
    ::fcntl(flood.get(), F_SETFL, O_NONBLOCK);
    const std::string block(64 << 10, 'z');
    for (int tries = 0; tries < 100; ++tries) {  // Until the pipe takes no more bytes.
      if (::write(flood.get(), block.data(), block.size()) > 0)
        tries = 0;
      else
        std::this_thread::sleep_for(1ms);
    }
  }
  void follow_log(const LogFileOptions& options = {}) {
    auto file = log_file("a", options);
    log = pipe({.file = file});
    pump->follow({.file = path("a"), .prefix = LinePrefix("[0]"), .written_here = std::move(file)});
  }
  void wait_for_size(std::size_t bytes) const {
    const auto deadline = testing::Clock::now() + kPatience;
    while (std::filesystem::file_size(path("a")) < bytes && testing::Clock::now() < deadline)
      std::this_thread::yield();
    REQUIRE(std::filesystem::file_size(path("a")) == bytes);
  }
  /// Reads the console to its end. Returns the lines of the log file, without their prefix.
  std::string shown_of_log() {
    flood.reset();
    log.reset();
    std::string text;
    auto report = begin_finish();
    while (report.wait_for(1ms) != std::future_status::ready)
      text += out.read_all();
    auto flushed = begin_flush();
    while (flushed.wait_for(1ms) != std::future_status::ready)
      text += out.read_all();
    std::istringstream lines(text + out.read_all());
    std::string shown;
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("[0]")) shown += line.substr(3) + "\n";
    return shown;
  }
  OwnedFd flood = pipe({.console = LogStream::Out});
  OwnedFd log;
};

TEST_CASE_METHOD(FullConsoleTest,
                 "log_pump: lines that a full disk refuses come after those in the file",
                 "[unit][agent]") {
  const FileSizeLimit limit(8 << 10);
  follow_log({.ends_when_full = true});
  write_all(log.get(), numbered_lines(0, 150));
  sync();
  SECTION("the disk stays full") {
    write_all(log.get(), numbered_lines(150, 10'000));
    CHECK_THAT(difference(shown_of_log(), numbered_lines(0, 10'000)), Catch::Equals(""));
  }
  SECTION("the disk has room again") {
    write_all(log.get(), numbered_lines(150, 500));
    wait_for_size(8 << 10);
    sync();
    const FileSizeLimit more(1 << 20);
    write_all(log.get(), numbered_lines(500, 10'000));
    CHECK_THAT(difference(shown_of_log(), numbered_lines(0, 10'000)), Catch::Equals(""));
    CHECK(std::filesystem::file_size(path("a")) > 8 << 10);
  }
  SECTION("the disk has room again when the attempt is over") {
    pump->run([this] {  // So one turn of the log thread reads these bytes and the pipe's end.
      write_all(log.get(), numbered_lines(150, 500));
      log.reset();
    });
    wait_for_size(8 << 10);
    sync();
    const FileSizeLimit more(1 << 20);
    std::promise<void> closed;
    pump->end_attempt([&closed](const auto&) { closed.set_value(); });
    REQUIRE(closed.get_future().wait_for(kPatience) == std::future_status::ready);
    CHECK(std::filesystem::file_size(path("a")) > 8 << 10);  // A line says what is missing.
    CHECK_THAT(difference(shown_of_log(), numbered_lines(0, 500)), Catch::Equals(""));
  }
}

// As logrotate's copytruncate does.
TEST_CASE_METHOD(FullConsoleTest,
                 "log_pump: a line says how many bytes were truncated before they were shown",
                 "[unit][agent]") {
  follow_log();
  const std::string before = numbered_lines(0, 10'000);
  const std::string after = numbered_lines(10'000, 12'000);
  const std::size_t left = GENERATE(0U, 10'003U);  // The second one is within a line.
  write_all(log.get(), before);
  wait_for_size(before.size());
  sync();
  std::string expected = left > 0 ? before.substr(0, left) + "\n" : "";
  std::filesystem::resize_file(path("a"), left);
  expected += "[muster: " + std::to_string(before.size() - left) +
              " bytes are not shown here: the file was truncated]\n";
  SECTION("and then the worker writes no more") {
    CHECK_THAT(difference(shown_of_log(), expected), Catch::Equals(""));
  }
  SECTION("and then the worker goes on") {
    write_all(log.get(), after);
    CHECK_THAT(difference(shown_of_log(), expected + after), Catch::Equals(""));
    CHECK(std::filesystem::file_size(path("a")) == left + after.size());
  }
}

}  // namespace
}  // namespace muster
