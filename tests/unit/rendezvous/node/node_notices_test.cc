#include "rendezvous/node/node_notices.h"

#include <chrono>
#include <utility>

#include <catch2/catch.hpp>

#include "rendezvous/rounds/notice.h"

using namespace muster;
using namespace std::chrono_literals;

namespace {

struct NoticesTest {
  NodeNotices notices;
  const Instant now = Instant{} + 1h;

  WorkersNotice told(Duration left, bool this_node = false) const {
    return {.deadline = now + left, .reason = "spot", .ranks = {}, .this_node = this_node};
  }
};

}  // namespace

TEST_CASE_METHOD(NoticesTest, "node notices: the earliest of a node's own deadlines counts",
                 "[unit][rendezvous]") {
  CHECK(notices.give(now + 30s, std::string(2 * kMaxNoticeReasonBytes, 'x')));
  CHECK_FALSE(notices.give(now + 31s, "later"));
  REQUIRE(notices.own());
  CHECK(notices.own()->reason.size() <= kMaxNoticeReasonBytes);
  CHECK(notices.give(now + 10s, "earlier"));
  CHECK(notices.own()->deadline == now + 10s);
  CHECK(notices.next_deadline(now) == now + 10s);
  CHECK_FALSE(notices.next_deadline(now + 10s));
  CHECK_FALSE(notices.goes_at(now + 9s));
  CHECK(notices.goes_at(now + 10s));
}

TEST_CASE_METHOD(NoticesTest, "node notices: a node knows its own deadline better than the host",
                 "[unit][rendezvous]") {
  notices.give(now + 10s, "spot");
  WorkersNotice later = told(12s, true);
  notices.learn(later);
  CHECK(later.deadline == now + 10s);
  WorkersNotice earlier = told(5s, true);
  notices.learn(earlier);
  CHECK(earlier.deadline == now + 5s);
  WorkersNotice of_another = told(12s);
  notices.learn(of_another);
  CHECK(of_another.deadline == now + 12s);
}

TEST_CASE_METHOD(NoticesTest, "node notices: what the host has decided ends with the next round",
                 "[unit][rendezvous]") {
  WorkersNotice of_host = told(5s, true);
  notices.learn(of_host);
  REQUIRE(notices.own());
  CHECK(notices.own()->of_host);
  CHECK_FALSE(notices.goes_at(now + 5s));
  notices.begin_round();
  CHECK_FALSE(notices.own());
  notices.give(now + 5s, "spot");
  notices.begin_round();
  CHECK(notices.own());
}

TEST_CASE_METHOD(NoticesTest, "node notices: the same deadline again is no news",
                 "[unit][rendezvous]") {
  CHECK(notices.give(now + 30s, "first"));
  CHECK_FALSE(notices.give(now + 30s, "second"));
  CHECK(notices.own()->reason == "first");
}

TEST_CASE_METHOD(NoticesTest, "node notices: a node's own notice takes the place of the host's",
                 "[unit][rendezvous]") {
  WorkersNotice of_host = told(5s, true);
  notices.learn(of_host);
  CHECK(notices.give(now + 10s, "spot"));
  CHECK_FALSE(notices.own()->of_host);
  CHECK(notices.own()->deadline == now + 10s);
}

TEST_CASE_METHOD(NoticesTest, "node notices: the host may move a deadline that it has decided",
                 "[unit][rendezvous]") {
  for (const Duration left : {10s, 5s, 20s}) {
    WorkersNotice of_host = told(left, true);
    notices.learn(of_host);
    CHECK(of_host.deadline == now + left);
    CHECK(notices.own()->deadline == now + left);
  }
}

TEST_CASE_METHOD(NoticesTest, "node notices: half a second is the difference of two deadlines",
                 "[unit][rendezvous]") {
  const auto [moved, is_news] =
      GENERATE(std::pair<Duration, bool>(499ms, false), std::pair<Duration, bool>(500ms, true),
               std::pair<Duration, bool>(-499ms, false), std::pair<Duration, bool>(-500ms, true));
  CHECK(notices.tell(told(30s)));
  CHECK(notices.tell(told(30s + moved)) == is_news);
}

TEST_CASE_METHOD(NoticesTest, "node notices: whatever else a notice says may be new",
                 "[unit][rendezvous]") {
  WorkersNotice notice = told(30s);
  notices.tell(notice);
  const auto is_news = [&] { return notices.tell(notice) && !notices.tell(notice); };
  notice.reason = "maintenance";
  CHECK(is_news());
  notice.this_node = true;
  CHECK(is_news());
  notice.stops = !notice.stops;
  CHECK(is_news());
  notice.ranks = {{0, 7}};
  CHECK(is_news());
}

TEST_CASE_METHOD(NoticesTest, "node notices: workers are told again only when something is new",
                 "[unit][rendezvous]") {
  CHECK(notices.tell(told(30s)));
  CHECK_FALSE(notices.tell(told(30s + 400ms)));  // The same deadline, measured twice.
  CHECK(notices.tell(told(29s)));
  WorkersNotice more = told(29s);
  more.ranks = {{0, 7}};
  CHECK(notices.tell(more));
  CHECK(notices.note_saved());
  CHECK_FALSE(notices.note_saved());
  notices.begin_round();
  CHECK_FALSE(notices.have_saved());
  CHECK(notices.tell(more));
}

TEST_CASE_METHOD(NoticesTest, "node notices: what was kept for another round is forgotten",
                 "[unit][rendezvous]") {
  notices.keep_for(4, told(30s));
  CHECK_FALSE(notices.take_kept(5));
  CHECK_FALSE(notices.take_kept(4));
  notices.keep_for(6, told(30s));
  CHECK(notices.take_kept(6));
}
