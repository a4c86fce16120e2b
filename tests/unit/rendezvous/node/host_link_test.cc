#include "rendezvous/node/host_link.h"

#include <chrono>

#include <catch2/catch.hpp>

using namespace muster;
using namespace std::chrono_literals;

namespace {

struct LinkTest {
  HostLink link{{.lease = 5s, .host_text = "host:29400", .random = 7}};
  Instant now{};

  void connect(Duration lease = 3s) {
    link.connected({.lease = lease, .resumes = true}, false, now);
  }
};

}  // namespace

TEST_CASE_METHOD(LinkTest, "host link: the host's lease counts from the first connection on",
                 "[unit][rendezvous]") {
  CHECK(link.lease() == 5s);
  connect(3s);
  CHECK(link.lease() == 3s);
  connect(1ms);
  CHECK(link.lease() == 100ms);
  link.connected({.resumes = true}, false, now);  // An older host says none.
  CHECK(link.lease() == 5s);
}

TEST_CASE_METHOD(LinkTest, "host link: three signs of life in each lease", "[unit][rendezvous]") {
  connect();
  CHECK_FALSE(link.take_keep_alive(now));
  CHECK(link.next_deadline(now) == now + 1s);
  now += 1s;
  CHECK(link.take_keep_alive(now));
  CHECK_FALSE(link.take_keep_alive(now));
  CHECK(link.next_deadline(now) == now + 1s);
}

TEST_CASE_METHOD(LinkTest, "host link: a host is silent when it has sent nothing for its lease",
                 "[unit][rendezvous]") {
  connect();
  now += 2s;
  link.heard(now);
  now += 3s - 1ms;
  CHECK_FALSE(link.is_silent(now));
  now += 1ms;
  CHECK(link.is_silent(now));
  link.forgive(3s, now);  // This process did not run in that time.
  CHECK_FALSE(link.is_silent(now));
}

TEST_CASE_METHOD(LinkTest, "host link: a connection that worked is made again at once",
                 "[unit][rendezvous]") {
  connect();
  link.answered();
  CHECK(link.lost("reset", now, now));
  CHECK(link.lost_since() == now);
  CHECK(link.take_connect(now));
  CHECK_FALSE(link.take_connect(now));  // One try at a time.
  link.try_failed("nobody listens", HostFound::Nobody, now);
  CHECK_FALSE(link.take_connect(now + 49ms));
  CHECK(link.take_connect(now + 100ms));
}

TEST_CASE_METHOD(LinkTest, "host link: the pauses grow to two seconds at most",
                 "[unit][rendezvous]") {
  connect(1h);
  link.lost("reset", now, now);
  for (int i = 0; i < 20; ++i) {
    now += 2s;
    REQUIRE(link.take_connect(now));
    link.try_failed("no answer", HostFound::Nobody, now);
  }
  CHECK_FALSE(link.take_connect(now + 999ms));
}

TEST_CASE_METHOD(LinkTest, "host link: a host is lost since the first loss, until it is back",
                 "[unit][rendezvous]") {
  connect();
  const Instant first = now;
  CHECK(link.lost("reset", now, now));
  now += 1s;
  connect();
  CHECK_FALSE(link.lost("reset again", now, now));
  CHECK(link.lost_since() == first);
  CHECK(link.lost_why() == "reset");
  CHECK(link.last_error() == "reset again");
  connect();
  link.back();
  CHECK(link.lost("a third time", now, now));
  CHECK(link.lost_why() == "a third time");
}

TEST_CASE_METHOD(LinkTest, "host link: a refusal is a sign of life within a lease of another one",
                 "[unit][rendezvous]") {
  connect();
  const Instant heard = now;
  link.lost("reset", now, now);
  now += 2s;
  link.refused(now);
  CHECK(link.evidence() == now);
  CHECK(link.refused_lately(now) == now);
  CHECK_FALSE(link.refused_lately(now + 3s));
  connect();
  link.lost("reset", now, now);
  now += 3s;
  link.refused(now);
  CHECK(link.evidence() == heard + 2s);
}

TEST_CASE_METHOD(LinkTest, "host link: people hear of four different errors at most",
                 "[unit][rendezvous]") {
  connect();
  link.lost("reset", now, now);
  CHECK_FALSE(link.take_news(""));
  CHECK_FALSE(link.take_news("reset"));
  for (const char* error : {"a", "b", "c", "d"}) {
    CHECK(link.take_news(error));
    link.try_failed(error, HostFound::Refusal, now);
    CHECK_FALSE(link.take_news(error));
  }
  CHECK_FALSE(link.take_news("e"));
  CHECK(link.host_that("is away") == "the rendezvous at host:29400 does not take this node back");
  CHECK(link.latest_try() == " (the latest attempt: d)");
  connect();
  CHECK(link.host_that("is away") == "the rendezvous at host:29400 is away");
  CHECK(link.latest_try().empty());
}
