#include "agent/sessions/answer_patience.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

using namespace std::chrono_literals;

TEST_CASE("answer patience: grows while a host is silent, and not without end", "[unit][agent]") {
  AnswerPatience patience(3s);
  CHECK(patience.limit() == 3s);
  patience.tried(true);
  CHECK(patience.limit() == 6s);
  for (int i = 0; i < 10; ++i)
    patience.tried(true);
  CHECK(patience.limit() == AnswerPatience::kMax);
  patience.tried(false);
  CHECK(patience.limit() == 3s);
}

}  // namespace
}  // namespace muster
