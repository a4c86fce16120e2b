// The plan for the id of a job.

#include <string>
#include <vector>

#include "tests/unit/launcher/plan_fixture.h"

namespace muster::testing {
namespace {

using Catch::Contains;
using Words = std::vector<std::string>;

TEST_CASE_METHOD(PlanFixture, "plan: the default id of a job of several nodes is named",
                 "[unit][launcher]") {
  const auto noticed = [&](Words words) {
    words.insert(words.end(), {"--rdzv-endpoint=h:7", "x"});
    const auto planned = plan(words);
    REQUIRE(planned.has_value());
    std::string text;
    for (const std::string& line : planned->notices)
      text += line + "\n";
    return text;
  };
  for (const char* backend : {"c10d", "etcd", "etcd-v2"}) {
    const std::string backend_flag = std::string("--rdzv-backend=") + backend;
    for (const char* nodes : {"--nnodes=3", "--nnodes=1:2"}) {
      CHECK_THAT(noticed({backend_flag, nodes}), Contains("default run id 'none'"));
      CHECK_THAT(noticed({backend_flag, nodes, "--rdzv-id=none"}), !Contains("run id"));
    }
    CHECK_THAT(noticed({backend_flag, "--nnodes=1"}), !Contains("run id"));
  }
  CHECK_THAT(noticed({"--rdzv-backend=static", "--nnodes=2"}), !Contains("run id"));
}

}  // namespace
}  // namespace muster::testing
