#include "agent/core/attempt_logs.h"

#include <string>

#include <catch2/catch.hpp>

namespace muster {
namespace {

struct AttemptLogsTest {
  AttemptLogs logs;

  // An attempt with two workers; the first one has this rank. Its files are named after both.
  void begin(int number, int rank) {
    std::vector<WorkerLogs> workers;
    for (int one = rank; one < rank + 2; ++one) {
      const std::string name = std::to_string(number) + "/" + std::to_string(one);
      workers.push_back({GlobalRank{one}, {name + "/out"}, {name + "/err"}});
    }
    logs.begin(number, std::move(workers));
  }
  std::string parts(int local_rank, int attempt, std::int64_t offset = 70) const {
    std::string text;
    NodeAsked asked{.to = {}, .local_rank = local_rank};
    asked.attempt = attempt;
    asked.offset = offset;
    for (const LogPart& part : logs.parts(asked))
      text += part.source.path + "@" + std::to_string(part.position) + " ";
    return text;
  }
};

TEST_CASE_METHOD(AttemptLogsTest, "attempt logs: there are no logs before the first attempt",
                 "[unit][agent]") {
  CHECK_FALSE(logs.has(LocalRank{0}));
  CHECK(logs.newest() == 0);
  begin(1, 4);
  CHECK((logs.has(LocalRank{1}) && !logs.has(LocalRank{2}) && !logs.has(LocalRank{-1})));
  CHECK(logs.newest() == 1);
}

TEST_CASE_METHOD(AttemptLogsTest, "attempt logs: the rest of an attempt is read before the next",
                 "[unit][agent]") {
  begin(1, 4);
  CHECK(parts(0, 1) == "1/4/out@70 ");
  begin(2, 4);
  CHECK(parts(0, 1) == "1/4/out@70 2/4/out@0 ");
  begin(3, 4);
  CHECK(parts(0, 1) == "1/4/out@70 2/4/out@0 3/4/out@0 ");
  CHECK(parts(1, 3) == "3/5/out@70 ");
}

TEST_CASE_METHOD(AttemptLogsTest,
                 "attempt logs: the newest attempt is read if the asked one is unknown",
                 "[unit][agent]") {
  for (int number = 1; number <= 12; ++number)
    begin(number, 4);
  CHECK(parts(0, 0, -16) == "12/4/out@-16 ");  // A new reader.
  CHECK(parts(0, 4) == "12/4/out@0 ");         // Too long ago.
  CHECK(parts(0, 17) == "12/4/out@0 ");        // The attempt of another node.
}

TEST_CASE_METHOD(AttemptLogsTest,
                 "attempt logs: a rank is found at the local rank that it had in that attempt",
                 "[unit][agent]") {
  begin(1, 4);
  begin(2, 3);
  CHECK(parts(1, 1) == "1/4/out@70 2/4/out@0 ");
  CHECK(parts(0, 1) == "2/3/out@0 ");  // Rank 3 was on another node.
}

TEST_CASE_METHOD(AttemptLogsTest,
                 "attempt logs: files that a plug-in uses again belong to the newest attempt",
                 "[unit][agent]") {
  for (int number = 1; number <= 2; ++number)
    logs.begin(number, {{GlobalRank{0}, {"same"}, {"err" + std::to_string(number)}}});
  CHECK(parts(0, 1) == "same@0 ");
  logs.begin(3, {{GlobalRank{0}, {}, {"err3"}}});
  CHECK(parts(0, 1).empty());
}

}  // namespace
}  // namespace muster
