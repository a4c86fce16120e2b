#include "agent/core/end_cause.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

TEST_CASE("end_cause: the line is an exception of torchrun's", "[unit][agent]") {
  CHECK(refusal("--nproc-per-node is 'x'").line() == "ValueError: --nproc-per-node is 'x'");
  CHECK(missing_resource("no such program").line() == "OSError: no such program");
}

TEST_CASE("end_cause: each kind has a name of its own", "[unit][agent]") {
  CHECK(refusal("x").kind == "refused");
  CHECK(missing_resource("x").kind == "start_failed");
}

}  // namespace
}  // namespace muster
