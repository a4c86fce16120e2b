#include "agent/core/line_merger.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

struct LineMergerTest {
  void add(int stream, std::string_view text, bool begins = true, bool ends = true) {
    const LinePrefix prefix("[" + std::to_string(stream) + "]");
    merger.add(stream, prefix, {text, begins, ends}, "", out);
  }
  void add_verbatim(std::string_view bytes) { merger.add_verbatim(bytes, out); }

  LineMerger merger;
  std::string out;
};

TEST_CASE_METHOD(LineMergerTest, "line_merger: lines get their prefixes", "[unit][agent]") {
  add(0, "a");
  add(1, "b");
  add(0, "");
  CHECK(out == "[0]a\n[1]b\n[0]\n");
}

TEST_CASE_METHOD(LineMergerTest,
                 "line_merger: a line that no other stream interrupts continues without a prefix",
                 "[unit][agent]") {
  add(0, "ab", true, false);
  add(0, "cd", false, false);
  add(0, "ef", false, true);
  add(0, "g");
  CHECK(out == "[0]abcdef\n[0]g\n");
}

TEST_CASE_METHOD(LineMergerTest, "line_merger: no line is printed inside a line of another stream",
                 "[unit][agent]") {
  add(0, "ab", true, false);
  add(1, "x");
  add(0, "cd", false, true);
  CHECK(out == "[0]ab\n[1]x\n[0]cd\n");
}

TEST_CASE_METHOD(LineMergerTest,
                 "line_merger: a line that was already ended gets no second newline",
                 "[unit][agent]") {
  add(0, "ab", true, false);
  add(1, "x");
  add(0, "", false, true);
  add(0, "c");
  CHECK(out == "[0]ab\n[1]x\n[0]c\n");
}

TEST_CASE_METHOD(LineMergerTest, "line_merger: a rewritten line begins on a line of its own",
                 "[unit][agent]") {
  add(0, "10%", true, false);
  add(0, "20%", true, false);
  add(0, "", false, true);
  CHECK(out == "[0]10%\n[0]20%\n");
}

TEST_CASE_METHOD(LineMergerTest, "line_merger: verbatim bytes are not changed", "[unit][agent]") {
  add_verbatim("ab");
  add_verbatim("");
  add_verbatim("cd\n");
  add_verbatim("e\r");
  add_verbatim("f");
  CHECK(out == "abcd\ne\rf");
}

TEST_CASE_METHOD(LineMergerTest, "line_merger: lines and verbatim bytes do not share a line",
                 "[unit][agent]") {
  add_verbatim("ab");
  add(0, "x");
  add_verbatim("cd\n");
  add(0, "y", true, false);
  add_verbatim("ef\n");
  add(0, "z", false, true);
  CHECK(out == "ab\n[0]x\ncd\n[0]y\nef\n[0]z\n");
}

TEST_CASE_METHOD(LineMergerTest, "line_merger: the time is inserted at its place in the prefix",
                 "[unit][agent]") {
  const auto prefix = LinePrefix::from_template("<$time> ", {});
  merger.add(0, prefix, {"a"}, "12:00:00.000", out);
  merger.add(0, prefix, {"b", true, false}, "12:00:00.001", out);
  merger.add(0, prefix, {"c", false, true}, "12:00:00.002", out);
  CHECK(out == "<12:00:00.000> a\n<12:00:00.001> bc\n");
}

TEST_CASE_METHOD(LineMergerTest,
                 "line_merger: muster's own lines are not printed inside another line",
                 "[unit][agent]") {
  add(0, "ab", true, false);
  merger.add_own("own\n", out);
  add(0, "cd", false, true);
  add_verbatim("verbatim");
  merger.add_own("own\n", out);
  merger.add_own("own\n", out);
  CHECK(out == "[0]ab\nown\n[0]cd\nverbatim\nown\nown\n");
}

}  // namespace
}  // namespace muster
