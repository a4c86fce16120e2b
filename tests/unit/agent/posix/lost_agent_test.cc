#include "agent/posix/lost_agent.h"

#include <signal.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>

namespace muster {
namespace {

struct Records {
  void request(int worker, int attempt) {
    records.record_request(worker, {.global_rank = worker + 4, .attempt = attempt});
  }
  void started(int worker) {
    records.record_start(
        {.kind = ShimReport::Kind::Started, .worker = worker, .pid = 100 + worker});
  }
  void start(int worker, int attempt) {
    request(worker, attempt);
    started(worker);
  }
  void exit(int worker, int status) {
    records.record_end({.kind = ShimReport::Kind::Exited,
                        .worker = worker,
                        .code = CLD_EXITED,
                        .status = status,
                        .wall_ms = 1'000});
  }
  void stop(int worker) {
    records.record_signal(
        {.kind = ShimReport::Kind::WorkerSignalled, .worker = worker, .status = SIGTERM});
    records.record_end({.kind = ShimReport::Kind::Exited,
                        .worker = worker,
                        .code = CLD_KILLED,
                        .status = SIGTERM,
                        .wall_ms = 1'000});
  }
  LostProcess lost() const { return records.lost_agent(7, {}, "was killed"); }

  WorkerRecords records;
};

TEST_CASE_METHOD(Records, "lost agent: each earlier attempt has its first failure",
                 "[unit][agent]") {
  for (int attempt = 3; attempt < 5; ++attempt) {  // The host counts, so 3 may be the first one.
    start(0, attempt);
    start(1, attempt);
    exit(1, 10 + attempt);
    stop(0);
  }
  start(0, 5);
  const LostProcess last = lost();
  CHECK(last.cause.text == "the agent (pid 7) was killed");
  REQUIRE(last.workers.size() == 1);
  CHECK_FALSE(last.workers[0].has_ended());
  const auto causes = last.earlier.kept();
  REQUIRE(causes.size() == 2);
  for (int i = 0; i < 2; ++i) {
    CHECK(causes[static_cast<std::size_t>(i)].attempt == 3 + i);
    CHECK(causes[static_cast<std::size_t>(i)].end.rank.value == 5);
    CHECK(causes[static_cast<std::size_t>(i)].end.exit.status == 13 + i);
  }
}

TEST_CASE_METHOD(Records, "lost agent: an attempt whose workers were only stopped has no cause",
                 "[unit][agent]") {
  start(0, 0);
  stop(0);
  start(0, 1);
  CHECK(lost().earlier.empty());
}

TEST_CASE_METHOD(Records,
                 "lost agent: a worker that starts after another's end is in one attempt with it",
                 "[unit][agent]") {
  request(0, 0);
  request(1, 0);
  started(1);
  stop(1);
  started(0);
  stop(0);
  CHECK(lost().workers.size() == 2);
}

TEST_CASE_METHOD(Records,
                 "lost agent: an attempt may begin after one in which no worker has started",
                 "[unit][agent]") {
  start(0, 0);
  exit(0, 1);
  request(0, 1);
  start(0, 2);
  REQUIRE(lost().earlier.kept().size() == 1);
  CHECK(lost().earlier.kept()[0].attempt == 0);
  CHECK(lost().workers.size() == 1);
}

}  // namespace
}  // namespace muster
