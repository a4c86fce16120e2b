#include "rendezvous/http/http_readiness.h"

#include <catch2/catch.hpp>

namespace muster::http::testing {

namespace {

std::string code_of(const AllFigures& figures) {
  const auto objection = objection_to_readiness(figures);
  if (!objection) return "ready";
  CHECK(objection->status == 503);
  return objection->code;
}

}  // namespace

TEST_CASE("http readiness: each cause has its code", "[unit][http]") {
  AllFigures figures;
  CHECK(code_of(figures) == "ready");
  figures.runs.state_problem = true;
  CHECK(code_of(figures) == "state_not_recorded");
  figures.draining = true;
  CHECK(code_of(figures) == "ending");
}

TEST_CASE("http readiness: of several hosts with one etcd only the leader is ready",
          "[unit][http]") {
  AllFigures figures;
  figures.runs.leads = true;
  CHECK(code_of(figures) == "ready");
  figures.runs.leads = false;
  CHECK(code_of(figures) == "standing_by");
}

}  // namespace muster::http::testing
