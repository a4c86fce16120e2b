// The rules of a job on several hosts.

#include "launcher/hosts/hosts_job.h"

#include <csignal>
#include <string>
#include <variant>
#include <vector>

#include <catch2/catch.hpp>

namespace muster::testing {
namespace {

using namespace std::chrono_literals;
using Catch::Contains;

struct HostsJobTest {
  Instant now{};
  HostsJob job{{.hosts = {"a", "b", "c"}, .min_nodes = 3, .version = "1", .program = "/bin/muster"},
               now};

  void reset(int min_nodes) {
    job = HostsJob({.hosts = {"a", "b", "c"}, .min_nodes = min_nodes, .version = "1"}, now);
  }
  HostsJob::Actions feed(const HostsJob::Event& event) { return job.step(event, now); }
  HostsJob::Actions after(Duration wait) {
    now += wait;
    return feed(HostsJob::TimeHasPassed{});
  }
  HostsJob::Actions ends(std::size_t host, int status, std::string words = {}) {
    return feed(HostsJob::Ended{host, status, std::move(words)});
  }
  void begin() {
    for (std::size_t host : {1U, 0U})
      REQUIRE(feed(HostsJob::Greeted{host, "1"}).empty());
    REQUIRE(of<HostsJob::SendJob>(feed(HostsJob::Greeted{2, "1"})).size() == 3);
  }
  template <typename Action>
  static std::vector<Action> of(const HostsJob::Actions& actions) {
    std::vector<Action> found;
    for (const auto& action : actions)
      if (const auto* one = std::get_if<Action>(&action)) found.push_back(*one);
    return found;
  }
  static std::string said(const HostsJob::Actions& actions) {
    std::string text;
    for (const auto& one : of<HostsJob::Say>(actions))
      text += one.text + "\n";
    return text;
  }
  /// The end, which must be among the actions.
  static HostsJob::Finish finish(const HostsJob::Actions& actions) {
    const auto found = of<HostsJob::Finish>(actions);
    REQUIRE(found.size() == 1);
    return found.front();
  }
};

TEST_CASE_METHOD(HostsJobTest, "hosts job: all succeed", "[unit][launcher]") {
  begin();
  CHECK(!job.next_deadline());
  CHECK(ends(1, 0).empty());
  CHECK(ends(0, 0).empty());
  CHECK(finish(ends(2, 0)).status == 0);
}

TEST_CASE_METHOD(HostsJobTest, "hosts job: no host begins if one cannot", "[unit][launcher]") {
  feed(HostsJob::Greeted{0, "1"});
  const auto failed = ends(1, 255, "Connection refused");
  CHECK_THAT(said(failed), Contains("ssh reaches no shell on b: Connection refused"));
  CHECK(of<HostsJob::SendJob>(failed).empty());
  REQUIRE(of<HostsJob::CloseInput>(failed).size() == 1);
  CHECK(of<HostsJob::CloseInput>(failed).front().host == 0);
  REQUIRE(of<HostsJob::Kill>(failed).size() == 1);
  CHECK(of<HostsJob::Kill>(failed).front().host == 2);
  CHECK(feed(HostsJob::Greeted{2, "1"}).empty());  // It was on its way.
  CHECK(ends(2, 137).empty());
  CHECK(of<HostsJob::Kill>(after(6s)).size() == 1);  // It does not leave.
  CHECK(finish(ends(0, 1)).status == 255);
}

TEST_CASE_METHOD(HostsJobTest, "hosts job: why a host cannot begin", "[unit][launcher]") {
  SECTION("no muster") {
    CHECK_THAT(said(ends(2, 127)),
               Contains("c has no muster: it is neither at /bin/muster nor in"));
  }
  SECTION("an old muster") {
    CHECK_THAT(said(ends(0, 2, "unrecognized")),
               Contains("a has another muster, which does not know --hosts: unrecognized"));
  }
  SECTION("another version") {
    const auto actions = feed(HostsJob::Greeted{1, "2"});
    CHECK_THAT(said(actions), Contains("b has muster 2, and this machine has 1"));
    CHECK(of<HostsJob::Kill>(actions).size() == 3);
    ends(0, 137);
    ends(2, 137);
    CHECK(finish(ends(1, 137)).status == 1);
  }
  SECTION("silence") {
    feed(HostsJob::Greeted{0, "1"});
    CHECK(after(59s).empty());
    CHECK_THAT(said(after(1s)), Contains("no answer of muster within 60 s from b, c"));
  }
  SECTION("a clean end too early is no success") {
    CHECK_THAT(said(ends(0, 0)), Contains("a ended with status 0 before"));
    ends(1, 0);
    CHECK(finish(ends(2, 0)).status == 1);
  }
}

TEST_CASE_METHOD(HostsJobTest, "hosts job: the first cause decides", "[unit][launcher]") {
  begin();
  CHECK(said(ends(0, 1)).empty());  // The rendezvous told it.
  CHECK(said(ends(1, 7)).empty());
  CHECK(job.next_deadline() == now + HostsJob::kLearnWithin);
  const auto told = of<HostsJob::SendSignal>(after(10s));
  REQUIRE(told.size() == 1);
  CHECK(told.front().host == 2);
  CHECK(told.front().number == SIGTERM);
  const auto last = ends(2, 143);
  CHECK(said(last) == "the job has failed: b ended with status 7\n");
  CHECK(finish(last).status == 7);
}

TEST_CASE_METHOD(HostsJobTest, "hosts job: a status that says nothing names all that failed",
                 "[unit][launcher]") {
  begin();
  ends(2, 1);
  ends(0, 1);
  const auto last = ends(1, 0);
  CHECK_THAT(said(last), Contains("the job has failed on a, c: the cause is in the lines"));
  CHECK(finish(last).status == 1);
}

TEST_CASE_METHOD(HostsJobTest, "hosts job: a lost connection ends the others", "[unit][launcher]") {
  begin();
  CHECK_THAT(said(ends(1, 255, "Timeout, server b not responding.")),
             Contains("the connection to b is lost: Timeout"));
  CHECK(of<HostsJob::SendSignal>(after(10s)).size() == 2);
  ends(0, 143);
  const auto finished = finish(ends(2, 0));
  CHECK(finished.status == 255);
  CHECK(finished.signal == 0);
}

TEST_CASE_METHOD(HostsJobTest, "hosts job: an elastic job goes on with fewer hosts",
                 "[unit][launcher]") {
  reset(2);
  begin();
  CHECK_THAT(said(ends(1, 255)), Contains("lost"));
  CHECK(!job.next_deadline());
  SECTION("and succeeds") {
    ends(0, 0);
    CHECK(finish(ends(2, 0)).status == 0);
  }
  SECTION("until too few are left") {
    ends(0, 9);
    CHECK(job.next_deadline());
    CHECK(of<HostsJob::SendSignal>(after(10s)).size() == 1);
    CHECK(finish(ends(2, 143)).status == 255);
  }
}

TEST_CASE_METHOD(HostsJobTest, "hosts job: a signal before the job begins", "[unit][launcher]") {
  feed(HostsJob::Greeted{0, "1"});
  const auto left = feed(HostsJob::SignalCame{SIGINT});
  CHECK(of<HostsJob::CloseInput>(left).size() == 1);
  CHECK(of<HostsJob::Kill>(left).size() == 2);
  ends(0, 1);
  ends(1, 137);
  CHECK(finish(ends(2, 137)).signal == SIGINT);
}

TEST_CASE_METHOD(HostsJobTest, "hosts job: signals", "[unit][launcher]") {
  begin();
  SECTION("are passed on, and the second one has a limit") {
    CHECK(of<HostsJob::SendSignal>(feed(HostsJob::SignalCame{SIGINT})).size() == 3);
    CHECK(!job.next_deadline());
    CHECK(said(ends(0, 130)).empty());
    CHECK(of<HostsJob::SendSignal>(feed(HostsJob::SignalCame{SIGTERM})).size() == 2);
    CHECK(of<HostsJob::Kill>(after(5s)).size() == 2);
    ends(1, 137);
    const auto finished = finish(ends(2, 137));
    CHECK(finished.signal == SIGINT);
    CHECK(finished.status == 130);
  }
  SECTION("that do not end the job are only passed on") {
    CHECK(of<HostsJob::SendSignal>(feed(HostsJob::SignalCame{SIGUSR1, false})).size() == 3);
    ends(0, 0);
    ends(1, 0);
    const auto finished = finish(ends(2, 0));
    CHECK(finished.signal == 0);
    CHECK(finished.status == 0);
  }
  SECTION("the job may end well nevertheless") {
    feed(HostsJob::SignalCame{SIGTERM});
    ends(0, 0);
    ends(1, 0);
    CHECK(finish(ends(2, 0)).signal == 0);
  }
}

}  // namespace
}  // namespace muster::testing
