#include "base/printable_text.h"

#include <catch2/catch.hpp>

#include "pickle/utf8.h"
#include "tests/support/prng.h"

namespace muster::testing {

TEST_CASE("printable text: plain text stays as it is", "[unit][rendezvous]") {
  for (const char* text : {"", "rank 3 exited with 1", "node-\xc3\xa9", "\xe6\x97\xa5\xe6\x9c\xac",
                           "\xf0\x9f\x9a\x80"})
    CHECK(printable_text(text) == text);
}

TEST_CASE("printable text: line ends and control characters are escaped", "[unit][rendezvous]") {
  CHECK(printable_text("a\nb\rc\td") == R"(a\x0ab\x0dc\x09d)");
  CHECK(printable_text("\x1b[31m") == R"(\x1b[31m)");
  CHECK(printable_text(std::string("\0\x7f", 2)) == R"(\x00\x7f)");
  CHECK(printable_text("\xc2\x9b"
                       "1m") == R"(\xc2\x9b1m)");              // C1's CSI.
  CHECK(printable_text("\xe2\x80\xa8") == R"(\xe2\x80\xa8)");  // Line separator.
  CHECK(printable_text("\xe2\x80\xae"
                       "txt") == R"(\xe2\x80\xaetxt)");  // Right-to-left.
  CHECK(printable_text(R"(" fake="1\)") == R"(\" fake=\"1\\)");
}

TEST_CASE("printable text: bytes that are not UTF-8 are escaped", "[unit][rendezvous]") {
  CHECK(printable_text("a\xff"
                       "b") == R"(a\xffb)");
  CHECK(printable_text("\xc3") == R"(\xc3)");
  CHECK(printable_text("\xed\xa0\x80") == R"(\xed\xa0\x80)");  // A surrogate.
}

TEST_CASE("printable text: a long text is cut", "[unit][rendezvous]") {
  CHECK(printable_text("abcdef", 6) == "abcdef");
  CHECK(printable_text("abcdefg", 6) == "abcdef...");
  CHECK(printable_text("ab\xc3\xa9zz", 3) == "ab\xc3\xa9...");
  CHECK(printable_text(std::string(1 << 20, '\n')).size() == 4 * kMaxLoggedTextBytes + 3);
}

TEST_CASE("terminal text: line ends stay, and other control characters are escaped",
          "[unit][rendezvous]") {
  CHECK(terminal_text("a\tb\n\"c\\\n") == "a\tb\n\"c\\\n");
  CHECK(terminal_text("a\r\nb\rc") == "a\nb\nc");
  CHECK(terminal_line("a\r\nb\x1b") == R"(a\x0ab\x1b)");
  CHECK(terminal_text("\x1b[31mred\x07") == R"(\x1b[31mred\x07)");
  CHECK(terminal_text("\xc2\x9b"
                      "1m\xff") == R"(\xc2\x9b1m\xff)");
  CHECK(terminal_text("\xe6\x97\xa5") == "\xe6\x97\xa5");
}

TEST_CASE("terminal text: a character that is cut may wait for its other bytes",
          "[unit][rendezvous]") {
  for (const char* whole : {"", "a", "\xc3\xa9", "a\xf0\x9f\x9a\x80", "\x80\x80\x80\x80", "\xff"})
    CHECK(cut_character_bytes(whole) == 0);
  CHECK(cut_character_bytes("a\xc3") == 1);
  CHECK(cut_character_bytes("a\xf0\x9f\x9a") == 3);
  CHECK(cut_character_bytes("\xe6\x97") == 2);
}

TEST_CASE("printable text: any bytes become one line of UTF-8", "[unit][rendezvous]") {
  Prng prng(11);
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (auto left = prng.below(12); left > 0; --left)
      text += static_cast<char>(prng.below(3) == 0 ? 0xc0 + prng.below(64) : prng.below(256));
    const std::string shown = printable_text(text, 8);
    REQUIRE(is_utf8(shown));
    for (const char c : shown)
      REQUIRE(static_cast<unsigned char>(c) >= 0x20);
  }
}

}  // namespace muster::testing
