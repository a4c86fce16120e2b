#include "agent/core/line_assembler.h"

#include <algorithm>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/support/prng.h"

namespace muster {
namespace {

using namespace std::chrono_literals;

// Records the pieces. "+": begins a new line; "~": continues the last line; "|": ends the line;
// "_": does not end it.
struct Recorder final : LineSink {
  void append(const LinePiece& piece) override {
    pieces.push_back((piece.begins ? "+" : "~") + std::string(piece.text) +
                     (piece.ends ? "|" : "_"));
    bytes += piece.text;
    if (piece.ends) bytes += '\n';
  }
  std::vector<std::string> pieces;
  std::string bytes;
};

using Pieces = std::vector<std::string>;

struct LineAssemblerTest {
  Pieces feed(std::string_view bytes, Duration after = 0s) {
    return made([&] { assembler.feed(bytes, now += after, sink); });
  }
  Pieces wait(Duration duration) {
    return made([&] { assembler.on_time(now += duration, sink); });
  }
  Pieces finish() {
    return made([&] { assembler.finish(sink); });
  }
  template <typename Action>
  Pieces made(Action action) {
    sink.pieces.clear();
    action();
    return sink.pieces;
  }

  LineAssembler assembler{{.max_line_bytes = 8, .quiet = 1s, .hold = 10s}};
  Recorder sink;
  Instant now{};
};

TEST_CASE_METHOD(LineAssemblerTest, "line_assembler: whole lines are emitted at once",
                 "[unit][agent]") {
  CHECK(feed("a\n\nbc\n") == Pieces{"+a|", "+|", "+bc|"});
  CHECK_FALSE(assembler.next_deadline().has_value());
  CHECK(finish().empty());
}

TEST_CASE_METHOD(LineAssemblerTest,
                 "line_assembler: a line that comes in several writes is emitted once",
                 "[unit][agent]") {
  CHECK(feed("al").empty());
  CHECK(feed("pha").empty());
  CHECK(feed("\nb\nc") == Pieces{"+alpha|", "+b|"});
  CHECK(feed("\n") == Pieces{"+c|"});
}

TEST_CASE_METHOD(LineAssemblerTest,
                 "line_assembler: an unfinished line is emitted when its stream is quiet",
                 "[unit][agent]") {
  feed("name? ");
  REQUIRE(assembler.next_deadline() == now + 1s);
  CHECK(wait(999ms).empty());
  CHECK(wait(1ms) == Pieces{"+name? _"});
  CHECK_FALSE(assembler.next_deadline().has_value());
  CHECK(wait(1h).empty());
  CHECK(feed("x\n") == Pieces{"~x|"});
  CHECK(feed("y\n") == Pieces{"+y|"});
}

TEST_CASE_METHOD(LineAssemblerTest, "line_assembler: new bytes delay the deadline, up to a limit",
                 "[unit][agent]") {
  feed(".");
  for (int i = 0; i < 6; ++i)
    feed(".", 900ms);
  CHECK(wait(900ms).empty());
  feed("", 0s);
  REQUIRE(assembler.next_deadline() == now + 100ms);
  LineAssembler patient({.max_line_bytes = 100, .quiet = 1s, .hold = 3s});
  Instant time{};
  for (int i = 0; i < 4; ++i)
    patient.feed(".", time += 900ms, sink);
  CHECK(patient.next_deadline() == Instant{} + 900ms + 3s);
}

TEST_CASE_METHOD(LineAssemblerTest,
                 "line_assembler: bytes that wait to be fed delay the deadline, too",
                 "[unit][agent]") {
  feed(".");
  for (int i = 0; i < 9; ++i) {
    now += 1s;
    assembler.expect_more(now);
    CHECK(wait(0s).empty());
  }
  now += 1s;  // Ten seconds in total: the line was held back for too long.
  assembler.expect_more(now);
  CHECK(wait(0s) == Pieces{"+._"});
}

TEST_CASE_METHOD(LineAssemblerTest, "line_assembler: the end of the stream ends the line",
                 "[unit][agent]") {
  feed("last");
  CHECK(finish() == Pieces{"+last|"});
  CHECK(finish().empty());
  feed("shown");
  wait(1s);
  CHECK(finish() == Pieces{"~|"});
  CHECK_FALSE(assembler.next_deadline().has_value());
}

TEST_CASE_METHOD(LineAssemblerTest, "line_assembler: CR LF is a line end", "[unit][agent]") {
  CHECK(feed("a\r\nb\r") == Pieces{"+a|"});
  CHECK(feed("\n\r\n") == Pieces{"+b|", "+|"});
}

TEST_CASE_METHOD(LineAssemblerTest, "line_assembler: of a progress bar the last state is shown",
                 "[unit][agent]") {
  CHECK(feed("\r 10%\r 20%\r 30%").empty());
  CHECK(feed("\r100%\n") == Pieces{"+100%|"});
  CHECK(feed("1%\r2%\r3%\r\n") == Pieces{"+3%|"});  // The CR before the newline erases nothing.
  CHECK(feed("a\r\r\rb\n") == Pieces{"+b|"});
}

TEST_CASE_METHOD(LineAssemblerTest,
                 "line_assembler: the state of a quiet progress bar is emitted, and each later one "
                 "as a new line",
                 "[unit][agent]") {
  feed("\r10%");
  CHECK(wait(1s) == Pieces{"+10%_"});
  feed("\r20%");
  CHECK(wait(1s) == Pieces{"+20%_"});
  CHECK(feed("\n") == Pieces{"~|"});
}

TEST_CASE_METHOD(LineAssemblerTest,
                 "line_assembler: a progress bar that is never quiet is emitted from time to time",
                 "[unit][agent]") {
  std::size_t shown = 0;
  for (int i = 0; i < 600; ++i) {
    feed("\r" + std::to_string(i), 100ms);
    shown += wait(0s).size();
  }
  CHECK(shown == 5);  // Every ten seconds of a minute, but not at its end.
}

TEST_CASE_METHOD(LineAssemblerTest,
                 "line_assembler: the rest of a partly shown line continues that line",
                 "[unit][agent]") {
  feed("ab");
  wait(1s);
  feed("cd\r");
  CHECK(feed("\n") == Pieces{"~cd|"});  // Comes after the shown part, which stays.
  feed("ab");
  wait(1s);
  feed("cd\r");
  CHECK(feed("new\n") == Pieces{"+new|"});
}

TEST_CASE_METHOD(LineAssemblerTest, "line_assembler: a line over the limit comes out in pieces",
                 "[unit][agent]") {
  CHECK(feed("01234567") == Pieces{"+01234567_"});
  CHECK(feed("89\n") == Pieces{"~89|"});
  CHECK(feed("0123456789abcdefX\nY\n") == Pieces{"+01234567_", "~89abcdef_", "~X|", "+Y|"});
  CHECK(feed("0123456\n") == Pieces{"+0123456|"});
  CHECK(feed("01234567\n") == Pieces{"+01234567_", "~|"});
}

TEST_CASE_METHOD(LineAssemblerTest, "line_assembler: all byte values are emitted unchanged",
                 "[unit][agent]") {
  const std::string all_bytes = [] {
    std::string text;
    for (int i = 0; i < 256; ++i)
      if (i != '\n' && i != '\r') text += static_cast<char>(i);
    return text + "\n";
  }();
  LineAssembler large;
  large.feed(all_bytes, now, sink);
  CHECK(sink.bytes == all_bytes);
}

TEST_CASE("line_assembler: a line of a megabyte comes out whole", "[unit][agent]") {
  LineAssembler assembler;
  Recorder sink;
  const std::string line(1 << 20, 'x');
  for (std::size_t at = 0; at < line.size(); at += 1000)
    assembler.feed(std::string_view(line).substr(at, 1000), Instant{}, sink);
  assembler.feed("\n", Instant{}, sink);
  REQUIRE(sink.pieces.size() == 1);
  CHECK(sink.bytes == line + "\n");
}

std::string random_stream(testing::Prng& prng, std::string_view alphabet) {
  std::string text;
  for (std::uint64_t n = prng.below(300); n > 0; --n)
    text += alphabet[prng.below(alphabet.size())];
  return text;
}

TEST_CASE("line_assembler: the output does not depend on how the stream is cut",
          "[unit][agent][property]") {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    INFO("seed " << seed);
    testing::Prng prng(seed);
    const std::string text = random_stream(prng, prng.chance(50) ? "abc\n\r" : "abcdefghijk\n");
    const LineLimits limits{.max_line_bytes = 1 + prng.below(40)};
    Recorder whole;
    LineAssembler one(limits);
    one.feed(text, Instant{}, whole);
    one.finish(whole);

    Recorder cut;
    LineAssembler many(limits);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = 1 + prng.below(1 + prng.below(50));
      many.feed(std::string_view(text).substr(at, size), Instant{}, cut);
      at += size;
    }
    many.finish(cut);
    REQUIRE(cut.pieces == whole.pieces);
  }
}

TEST_CASE("line_assembler: no byte is lost, for any input at any time", "[unit][agent][property]") {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    INFO("seed " << seed);
    testing::Prng prng(seed);
    std::string text = random_stream(prng, "abcdef\n");
    LineAssembler assembler({.max_line_bytes = 1 + prng.below(40), .quiet = 3ns, .hold = 10ns});
    Recorder sink;
    Instant now{};
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = 1 + prng.below(20);
      assembler.feed(std::string_view(text).substr(at, size), now, sink);
      at += size;
      now += Duration(prng.below(6));
      assembler.on_time(now, sink);
    }
    assembler.finish(sink);
    if (!text.empty() && text.back() != '\n') text += '\n';
    REQUIRE(sink.bytes == text);
    // A line begins once, and is continued only if it has not ended.
    bool open = false;
    for (const std::string& piece : sink.pieces) {
      REQUIRE((piece.front() == '~') == open);
      open = piece.back() == '_';
    }
    REQUIRE_FALSE(open);
  }
}

// The simple reference implementation: it has the whole line, and splits it at carriage returns.
std::string last_state(const std::string& line) {
  std::string state;
  std::string segment;
  for (const char c : line + "\r") {
    if (c != '\r') {
      segment += c;
    } else {
      if (!segment.empty()) state = segment;
      segment.clear();
    }
  }
  return state;
}

TEST_CASE("line_assembler: carriage returns give the same result as a plain implementation",
          "[unit][agent][property]") {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    INFO("seed " << seed);
    testing::Prng prng(seed);
    const std::string text = random_stream(prng, "ab\r\n") + "\n";
    Recorder sink;
    LineAssembler assembler;
    std::string expected;
    std::string line;
    for (const char c : text) {
      assembler.feed(std::string(1, c), Instant{}, sink);
      if (c != '\n') {
        line += c;
      } else {
        expected += last_state(line) + "\n";
        line.clear();
      }
    }
    REQUIRE(sink.bytes == expected);
  }
}

}  // namespace
}  // namespace muster
