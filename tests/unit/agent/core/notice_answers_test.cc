#include "agent/core/notice_answers.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

const LocalRank kNoticeZero{0};
const LocalRank kNoticeOne{1};

TEST_CASE("notice answers: the node is ready when its last worker has answered", "[unit][notice]") {
  NoticeAnswers answers(2);
  answers.notified(1);
  CHECK_FALSE(answers.take_complete());
  answers.answered(kNoticeOne, 1);
  CHECK(answers.has_answered(kNoticeOne));
  CHECK_FALSE(answers.take_complete());
  answers.answered(kNoticeZero, std::nullopt);
  CHECK(answers.take_complete());
  CHECK_FALSE(answers.take_complete());  // Once.
}

TEST_CASE("notice answers: an answer before the notice counts if the worker then ends with 0",
          "[unit][notice]") {
  NoticeAnswers answers(1);
  answers.answered(kNoticeZero, std::nullopt);
  CHECK(answers.has_answered_ahead(kNoticeZero));
  CHECK_FALSE(answers.has_answered(kNoticeZero));
  SECTION("it goes on") {
    answers.notified(4);
    CHECK_FALSE(answers.has_answered_ahead(kNoticeZero));
    CHECK_FALSE(answers.has_answered(kNoticeZero));
    CHECK_FALSE(answers.take_complete());
  }
  SECTION("it ends with 0, before the notice or after it") {
    const bool before = GENERATE(true, false);
    if (!before) answers.notified(4);
    answers.ended(kNoticeZero, true);
    CHECK(answers.has_answered(kNoticeZero));
    CHECK(answers.take_complete() != before);
    answers.notified(5);
    CHECK(answers.take_complete() == before);
  }
  SECTION("it fails") {
    answers.ended(kNoticeZero, false);
    answers.notified(4);
    CHECK_FALSE(answers.has_answered(kNoticeZero));
    CHECK_FALSE(answers.take_complete());
  }
}

TEST_CASE("notice answers: an answer to a notice of an earlier attempt is not ahead of one",
          "[unit][notice]") {
  NoticeAnswers answers(1);
  answers.answered(kNoticeZero, 3);
  CHECK_FALSE(answers.has_answered_ahead(kNoticeZero));
}

TEST_CASE("notice answers: an answer stays valid when the notice changes", "[unit][notice]") {
  NoticeAnswers answers(2);
  answers.notified(3);
  answers.answered(kNoticeZero, 3);
  answers.notified(4);
  answers.answered(kNoticeOne, 3);  // The worker had not read the second notice.
  CHECK(answers.take_complete());
  answers.notified(5);
  CHECK_FALSE(answers.take_complete());
}

TEST_CASE("notice answers: workers that have ended", "[unit][notice]") {
  NoticeAnswers answers(2);
  answers.notified(1);
  SECTION("with 0 after its answer: it has stopped for the notice") {
    answers.answered(kNoticeZero, 1);
    answers.ended(kNoticeZero, true);
    CHECK(answers.has_answered(kNoticeZero));
    CHECK_FALSE(answers.take_complete());
    answers.answered(kNoticeOne, 1);
    CHECK(answers.take_complete());
  }
  SECTION("with 0 and without an answer: its work is done, and nobody waits for its answer") {
    answers.ended(kNoticeZero, true);
    answers.answered(kNoticeZero, 1);  // From a process that it has left.
    CHECK_FALSE(answers.has_answered(kNoticeZero));
    answers.answered(kNoticeOne, 1);
    CHECK(answers.take_complete());
  }
  SECTION("all with 0 and without an answer: the node has finished, and is not ready for a stop") {
    answers.ended(kNoticeZero, true);
    answers.ended(kNoticeOne, true);
    CHECK_FALSE(answers.take_complete());
  }
  SECTION("a failure") {
    answers.answered(kNoticeZero, 1);
    answers.ended(kNoticeZero, false);
    answers.answered(kNoticeOne, 1);
    CHECK_FALSE(answers.take_complete());
  }
}

TEST_CASE("notice answers: new workers begin without a notice", "[unit][notice]") {
  NoticeAnswers answers(1);
  answers.notified(1);
  answers.answered(kNoticeZero, 1);
  answers.ended(kNoticeZero, true);
  CHECK(answers.take_complete());
  answers.attempt_begins();
  CHECK_FALSE(answers.holds());
  answers.notified(2);
  CHECK_FALSE(answers.take_complete());
  answers.answered(kNoticeZero, 1);  // From a process that has outlived its attempt.
  CHECK_FALSE(answers.take_complete());
  answers.answered(kNoticeZero, 2);
  CHECK(answers.take_complete());
}

}  // namespace
}  // namespace muster
