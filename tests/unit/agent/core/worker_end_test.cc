#include "agent/core/worker_end.h"

#include <csignal>

#include <catch2/catch.hpp>

namespace muster {
namespace {

TEST_CASE("worker_end: a signal without a name is told by its number", "[unit][agent]") {
  CHECK(exit_text({.killed = true, .status = SIGKILL}) == "was killed by SIGKILL");
  CHECK(exit_text({.killed = true, .status = 40}) == "was killed by signal 40");
  CHECK(exit_text({.status = 3}) == "exited with 3");
}

TEST_CASE("worker_end: the wall clock counts as set if its offset changes", "[unit][agent]") {
  WallClockWatch watch;
  CHECK_FALSE(watch.was_set());
  watch.add(7000);
  watch.add(7000 + WallClockWatch::kToleranceMs);
  CHECK_FALSE(watch.was_set());
  WallClockWatch other;
  watch.add(other);
  other.add(6999);
  watch.add(other);
  CHECK(watch.was_set());
}

}  // namespace
}  // namespace muster
