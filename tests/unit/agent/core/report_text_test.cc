#include "agent/core/report_text.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

TEST_CASE("report_text: times before the epoch are rounded down to whole seconds",
          "[unit][agent]") {
  CHECK(floor_s(1999) == 1);
  CHECK(floor_s(0) == 0);
  CHECK(floor_s(-1) == -1);
  CHECK(floor_s(-1000) == -1);
}

TEST_CASE("report_text: a line's width is its number of characters", "[unit][agent]") {
  CHECK(widest_line("") == 0);
  CHECK(widest_line("ab\nabcd\na") == 4);
  CHECK(widest_line("\xc3\xa4\xe2\x82\xac") == 2);
}

TEST_CASE("report_text: all lines but the first are indented", "[unit][agent]") {
  CHECK(indented("a\nb\n\nc") == "a\n  b\n  \n  c");
}

TEST_CASE("report_text: control characters of a worker's text do not reach the terminal",
          "[unit][agent]") {
  CHECK(presentable("a\x1b[2J\tb\x7f") == "\na?[2J\tb?");
  CHECK(presentable("10%\r20%\r100%\r\nnext\n") == "\n100%\nnext");
  CHECK(presentable("").empty());
}

TEST_CASE("report text: lines of C++ stacks are left out", "[unit][agent]") {
  CHECK(without_frames("cause\nframe #0: c10::Error(char*) + 0x80 (0x7f in libc10.so)\nframe #17: "
                       "<unknown function>\n\nafter") == "cause\n\nafter");
  CHECK(without_frames("[rank12]: frame #3: clone3\n  frame #4: x\n[rank12]: boom\n") ==
        "[rank12]: boom\n");
  for (const char* kept : {"frame 3: x\n", "frame #x: y\n", "a frame #1: y\n", "frame #1\n",
                           "frame #\n", "[rank0]: frames\n", "[rank0", "\n", ""})
    CHECK(without_frames(kept) == kept);
}

}  // namespace
}  // namespace muster
