#include "agent/posix/worker_cgroup.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

TEST_CASE("worker cgroup: the path of cgroup v2 among those of v1", "[unit][cgroup]") {
  CHECK(unified_cgroup("0::/user.slice/run-1.scope\n") == "/user.slice/run-1.scope");
  CHECK(unified_cgroup("4:memory:/a\n1:name=systemd:/b\n0::/c\n") == "/c");
  CHECK(unified_cgroup("0::/") == "/");
  CHECK(unified_cgroup("4:memory:/0::/x\n").empty());
  CHECK(unified_cgroup("").empty());
}

}  // namespace
}  // namespace muster
