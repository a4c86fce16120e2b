#include "agent/logs/muster_lines.h"

#include <chrono>
#include <string>

#include <catch2/catch.hpp>

#include "tests/support/pipe.h"

namespace muster {
namespace {

using namespace std::chrono_literals;

struct MusterLinesTest {
  testing::Pipe pipe;
  LogConsoles consoles{pipe.write_end.get(), pipe.write_end.get()};
  MusterLines lines{consoles};
  const Instant begin{};

  void print(const std::string& text, Keep keep = Keep::IfThereIsRoom) {
    lines.print({LogStream::Err, text, keep});
  }
  /// All that the console's reader gets.
  std::string shown() {
    std::string all;
    do {
      consoles.flush();
      all += pipe.read_all();
    } while (!consoles.all_shown());
    return all;
  }
  void fill_console() { consoles.of(LogStream::Err).console.buffer().append(2 << 20, 'w'); }
};

}  // namespace

TEST_CASE_METHOD(MusterLinesTest, "muster lines: held lines come in order when they are released",
                 "[conformance][logs]") {
  print("first\n");
  lines.hold_until(begin + 1s);
  print("second\n");
  print("third\n");
  CHECK(shown() == "first\n");
  CHECK(lines.must_hold(begin + 999ms));
  CHECK_FALSE(lines.must_hold(begin + 1s));
  lines.release();
  CHECK_FALSE(lines.held_until());
  CHECK(shown() == "second\nthird\n");
}

TEST_CASE_METHOD(MusterLinesTest, "muster lines: a hold goes on while stderr has no room",
                 "[conformance][logs]") {
  lines.hold_until(begin + 1s);
  fill_console();
  CHECK(lines.must_hold(begin + 2s));
  shown();
  CHECK(lines.must_hold(begin + 2s));  // A little time is left for what the workers wrote.
  CHECK_FALSE(lines.must_hold(begin + 3s));
}

TEST_CASE_METHOD(MusterLinesTest,
                 "muster lines: what nobody reads is dropped, and a line says how much",
                 "[conformance][logs]") {
  fill_console();
  fill_console();
  print("dropped\n");
  print("kept\n", Keep::Always);
  lines.count_dropped(2);
  const std::string all = shown();
  CHECK(all.find("dropped") == std::string::npos);
  CHECK(all.find("[muster: 1 of its own lines are missing here") != std::string::npos);
  CHECK(all.find("kept\n") != std::string::npos);
  lines.print_losses();
  CHECK(shown() == "[muster: 2 of its own lines are missing here: nobody read them in time]\n");
  lines.print_losses();
  CHECK(shown().empty());
}

TEST_CASE_METHOD(MusterLinesTest, "muster lines: bytes that a console has lost are reported once",
                 "[conformance][logs]") {
  consoles.of(LogStream::Err).console.count_lost(7);
  lines.print_losses();
  CHECK(shown() == "[muster: 7 bytes could not be shown on stdout and stderr]\n");
  lines.print_losses();
  CHECK(shown().empty());
}

}  // namespace muster
