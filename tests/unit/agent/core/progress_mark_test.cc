#include "agent/core/progress_mark.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

TEST_CASE("progress file: a number is a step, and any other change is progress", "[unit][agent]") {
  ProgressMark mark;
  mark.begin("90\n");
  CHECK_FALSE(mark.read("90\n"));
  CHECK(mark.read(" 91 \n") == Progressed{91});
  CHECK(mark.read("epoch 2") == Progressed{});
  CHECK(mark.read("-1") == Progressed{});
}

TEST_CASE("progress file: while it is written anew, nothing is read", "[unit][agent]") {
  ProgressMark mark;
  mark.begin(std::nullopt);
  CHECK_FALSE(mark.read(std::nullopt));
  CHECK_FALSE(mark.read(""));
  CHECK(mark.read("5") == Progressed{5});
  CHECK(mark.read(std::nullopt) == Progressed{5});
}

TEST_CASE("progress file: the progress of an earlier attempt does not count", "[unit][agent]") {
  ProgressMark mark;
  mark.begin("1");
  CHECK(mark.read("2") == Progressed{2});
  mark.begin("2");
  CHECK_FALSE(mark.read("2"));
}

}  // namespace
}  // namespace muster
