#include "agent/core/tail_ring.h"

#include <catch2/catch.hpp>

#include "tests/support/prng.h"

namespace muster {
namespace {

std::string_view last(std::string_view text, std::size_t lines, std::size_t bytes = 4096) {
  return last_lines(text, {lines, bytes}, true);
}

TEST_CASE("tail_ring: the last lines, an unterminated one included", "[unit][agent]") {
  CHECK(last("a\nb\nc\n", 2) == "b\nc\n");
  CHECK(last("a\nb\nc", 2) == "b\nc");
  CHECK(last("a\nb\nc", 3) == "a\nb\nc");
  CHECK(last("a\nb\nc", 9) == "a\nb\nc");
  CHECK(last("a\n\n\n", 2) == "\n\n");
  CHECK(last("\n", 1) == "\n");
  CHECK(last("\na", 5) == "\na");
  CHECK(last("", 5).empty());
  CHECK(last("a", 0).empty());
  CHECK(last("a", 1, 0).empty());
}

TEST_CASE("tail_ring: a line that is cut at its front is left out, unless it is all there is",
          "[unit][agent]") {
  CHECK(last("long line\nx\n", 5, 6) == "x\n");
  CHECK(last("ab\nx\n", 5, 2) == "x\n");  // The limit cuts exactly between two lines.
  CHECK(last("0123456789", 5, 4) == "6789");
  CHECK(last_lines("rest\nwhole\n", {5, 100}, false) == "whole\n");
  CHECK(last_lines("rest\nwhole\n", {5, 100}, true) == "rest\nwhole\n");
  CHECK(last_lines("rest of one", {5, 100}, false) == "rest of one");
}

TEST_CASE("tail_ring: before it is full it holds everything", "[unit][agent]") {
  TailRing ring(8);
  CHECK(ring.text().empty());
  ring.append("ab\n");
  ring.append("cd\n");
  CHECK(ring.text() == "ab\ncd\n");
  CHECK(ring.lines({1, 100}) == "cd\n");
  CHECK(ring.lines({9, 100}) == "ab\ncd\n");
  ring.append("12");
  CHECK(ring.text() == "ab\ncd\n12");  // Exactly full: no byte is lost.
  CHECK(ring.lines({9, 100}) == "ab\ncd\n12");
  ring.append("3");
  CHECK(ring.text() == "b\ncd\n123");
  CHECK(ring.lines({9, 100}) == "cd\n123");
}

TEST_CASE("tail_ring: frames of C++ do not push the cause out of the last lines", "[unit][agent]") {
  TailRing ring(16'000);
  ring.append("the cause\n");
  for (int i = 0; i < 100; ++i)
    ring.append("frame #" + std::to_string(i) + ": f() + 0x80 (0x7f in libtorch.so)\n");
  ring.append("the end\n");
  CHECK(ring.lines({2, 100}) == "the cause\nthe end\n");
}

TEST_CASE("tail_ring: a piece longer than the ring leaves its end", "[unit][agent]") {
  TailRing ring(4);
  ring.append("abcdefgh");
  CHECK(ring.text() == "efgh");
  ring.append("");
  CHECK(ring.text() == "efgh");
}

TEST_CASE("tail_ring: random pieces leave the same end as in a plain string", "[unit][agent]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed);
    testing::Prng prng(seed);
    const std::size_t capacity = 1 + prng.below(40);
    TailRing ring(capacity);
    std::string all;
    for (int i = 0; i < 20; ++i) {
      std::string chunk;
      for (std::uint64_t n = prng.below(30); n > 0; --n)
        chunk += "ab\n"[prng.below(3)];
      ring.append(chunk);
      all += chunk;
      const std::string kept = all.size() > capacity ? all.substr(all.size() - capacity) : all;
      REQUIRE(ring.text() == kept);
    }
  }
}

}  // namespace
}  // namespace muster
