#include "rendezvous/http/http_route.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "rendezvous/rounds/limits.h"
#include "rendezvous/rounds/run_view.h"

namespace muster::http::testing {

unsigned status_of(std::string_view target, std::string_view method = "GET") {
  const auto route = find_route({method, target});
  return route ? 200 : route.error().status;
}

TEST_CASE("http routes: each resource is found", "[unit][http]") {
  CHECK(std::holds_alternative<Health>(*find_route({"GET", "/healthz"})));
  CHECK(std::holds_alternative<Ready>(*find_route({"GET", "/readyz"})));
  CHECK(std::holds_alternative<Metrics>(*find_route({"HEAD", "/metrics"})));
  CHECK(std::get<OneRun>(*find_route({"GET", "/api/v1/runs/job"})).id == "job");
  CHECK(std::get<NodeList>(*find_route({"GET", "/api/v1/runs/job/nodes"})).page.limit ==
        kMaxViewedNodes);
  CHECK(std::get<EventStream>(*find_route({"GET", "/api/v1/runs/job/events"})).id == "job");
  CHECK(std::get<EventStream>(*find_route({"GET", "/api/v1/events"})).id.empty());
  CHECK(std::get<StepList>(*find_route({"GET", "/api/v1/runs/job/steps"})).id == "job");
  CHECK(std::holds_alternative<ServerInfo>(*find_route({"GET", "/api/v1/server"})));
  for (const char* file : {"/", "/page.css", "/favicon.svg", "/words.js", "/dom.js", "/hub.js",
                           "/plot.js", "/nodes.js", "/page.js"})
    CHECK(std::holds_alternative<Asset>(*find_route({"GET", file})));
}

TEST_CASE("http routes: the stream of the list watches runs, a bounded number", "[unit][http]") {
  const auto watched = [](const std::string& query) {
    return std::get<EventStream>(*find_route({"GET", "/api/v1/events" + query})).watched;
  };
  CHECK(watched("").empty());
  CHECK(watched("?run=a&run=b%26c") == std::vector<std::string>{"a", "b&c"});
  std::string many = "?run=x";
  for (std::size_t i = 1; i < kMaxWatchedRuns; ++i)
    many += "&run=x" + std::to_string(i);
  CHECK(watched(many).size() == kMaxWatchedRuns);
  CHECK(status_of("/api/v1/events" + many + "&run=y") == 400);
  CHECK(status_of("/api/v1/events?run=") == 400);
  CHECK(status_of("/api/v1/events?run=%zz") == 400);
  CHECK(status_of("/api/v1/events?limit=1") == 400);
  CHECK(status_of("/api/v1/events?run=" + std::string(kMaxRunIdBytes + 1, 'x')) == 400);
}

TEST_CASE("http routes: a target may name its host", "[unit][http]") {
  CHECK_FALSE(absolute_target("/api/v1/runs/http://x"));
  CHECK_FALSE(absolute_target("*"));
  const auto split = [](std::string_view target) {
    const auto absolute = absolute_target(target);
    return absolute ? absolute->host + " " + absolute->target : std::string();
  };
  CHECK(split("http://localhost:9400/healthz?x=1/2") == "localhost:9400 /healthz?x=1/2");
  CHECK(split("https://[::1]:9400") == "[::1]:9400 /");
  CHECK(split("http://evil?a") == "evil /?a");
}

TEST_CASE("http routes: a run id may have any bytes", "[unit][http]") {
  CHECK(std::get<OneRun>(*find_route({"GET", "/api/v1/runs/a%2Fb%20%25%ff"})).id == "a/b %\xff");
  CHECK(status_of("/api/v1/runs/%") == 400);
  CHECK(status_of("/api/v1/runs/%2") == 400);
  CHECK(status_of("/api/v1/runs/%zz") == 400);
  CHECK(status_of("/api/v1/runs/") == 400);
  CHECK(status_of("/api/v1/runs/" + std::string(kMaxRunIdBytes, 'x')) == 200);
  CHECK(status_of("/api/v1/runs/" + std::string(kMaxRunIdBytes + 1, 'x')) == 400);
}

TEST_CASE("http routes: every target of a run gives the run's id", "[unit][http]") {
  const auto run = [](std::string_view method, std::string_view target) {
    return std::string(run_of(*find_route({method, target})));
  };
  for (const char* what : {"", "/nodes", "/steps", "/events", "/ranks/3/log"})
    CHECK(run("GET", std::string("/api/v1/runs/a%2Fb") + what) == "a/b");
  for (const char* what : {"/restart", "/stop", "/ranks/3/stacks", "/nodes/n/drain",
                           "/nodes/n/exclude", "/nodes/n/allow"})
    CHECK(run("POST", std::string("/api/v1/runs/a%2Fb") + what) == "a/b");
  for (const char* what :
       {"/", "/api/v1/runs", "/api/v1/events", "/api/v1/server", "/metrics", "/healthz"})
    CHECK(run("GET", what).empty());
}

TEST_CASE("http routes: pages are bounded", "[unit][http]") {
  const auto page = [](std::string_view target) {
    return std::get<RunList>(*find_route({"GET", target})).page;
  };
  CHECK(page("/api/v1/runs").limit == kMaxViewedRuns);
  CHECK(page("/api/v1/runs?limit=5&offset=7").offset == 7);
  CHECK(page("/api/v1/runs?limit=5&offset=7").limit == 5);
  CHECK(page("/api/v1/runs?limit=99999999").limit == kMaxViewedRuns);
  for (const char* target :
       {"/api/v1/runs?limit=-1", "/api/v1/runs?limit=", "/api/v1/runs?limit=1x",
        "/api/v1/runs?limit=99999999999999999999999", "/api/v1/runs?nonsense=1", "/metrics?x=1"})
    CHECK(status_of(target) == 400);
}

TEST_CASE("http routes: an unknown target is an error with its reason", "[unit][http]") {
  CHECK(status_of("/nothing") == 404);
  CHECK(status_of("/api/v1") == 404);
  CHECK(status_of("/api/v1/runs/job/nodes/3") == 404);
  CHECK(status_of("/api/v1/runs/job/elsewhere") == 404);
  CHECK(status_of("/../etc/passwd") == 404);
  CHECK(status_of("//") == 404);
  CHECK(status_of("*") == 400);
  CHECK(status_of("http://host/healthz") == 400);
  CHECK(status_of("/healthz", "POST") == 405);
  CHECK(status_of("/nothing", "POST") == 404);
  CHECK(status_of("/healthz", "DELETE") == 405);
  CHECK(status_of("/nothing", "DELETE") == 404);
  // Each resource names its own methods.
  CHECK(find_route({"OPTIONS", "/api/v1/runs"}).error().allow == "GET, HEAD");
  CHECK(find_route({"OPTIONS", "/api/v1/runs/job/stop"}).error().allow == "POST");
  CHECK(status_of("/" + std::string(kMaxTargetBytes, 'x')) == 414);
  const auto error = find_route({"GET", "/nothing"}).error();
  CHECK(error.code == "not_found");
  CHECK_THAT(error.message, Catch::Contains("/api/v1/runs"));
}

TEST_CASE("http routes: only POST changes a run", "[unit][http]") {
  const auto stop = std::get<Action>(*find_route({"POST", "/api/v1/runs/a%20b/stop"}));
  CHECK(stop.id == "a b");
  CHECK(stop.asked.what == OperatorAsked::What::Stop);
  CHECK(std::get<Action>(*find_route({"POST", "/api/v1/runs/job/restart"})).asked.what ==
        OperatorAsked::What::Restart);
  const auto drain = std::get<Action>(*find_route({"POST", "/api/v1/runs/job/nodes/a%2Fb/drain"}));
  CHECK(drain.asked.what == OperatorAsked::What::Drain);
  CHECK(drain.asked.node == "a/b");
  CHECK_FALSE(drain.asked.notice);
  for (const char* target : {"/api/v1/runs/job/nodes/a/exclude", "/api/v1/runs/job/nodes/a/allow"})
    CHECK(find_route({"POST", target}).has_value());
  CHECK(status_of("/api/v1/runs/job/nodes/a/drain") == 405);
  CHECK(status_of("/api/v1/runs/job/nodes/a/love", "POST") == 404);
  CHECK(status_of("/api/v1/runs/job/nodes//drain", "POST") == 400);
  CHECK(status_of("/api/v1/runs/job/nodes/" + std::string(kMaxNodeTextBytes + 1, 'a') + "/drain",
                  "POST") == 400);
  for (const char* method : {"GET", "HEAD"}) {
    const auto error = find_route({method, "/api/v1/runs/job/restart"}).error();
    CHECK(error.status == 405);
    CHECK(error.allow == "POST");
  }
  CHECK(status_of("/api/v1/runs/job/restart", "PUT") == 405);
}

TEST_CASE("http routes: a drain may have a notice", "[unit][http]") {
  const std::string drain = "/api/v1/runs/job/nodes/a/drain";
  const auto with = std::get<Action>(
      *find_route({"POST", drain + "?notice=90&reason=kernel%20update%3A%20%C3%A9"}));
  CHECK(with.asked.notice == std::chrono::seconds(90));
  CHECK(with.asked.reason == "kernel update: \xc3\xa9");
  CHECK(std::get<Action>(*find_route({"POST", drain + "?notice=1"})).asked.reason ==
        "drained by an operator");
  CHECK(find_route({"POST", drain + "?notice=" + std::to_string(kMaxNoticeSeconds)}).has_value());
  CHECK_FALSE(std::get<Action>(*find_route({"POST", drain + "?reason=x"})).asked.notice);
  for (const std::string& query :
       {std::string("notice=0"), std::string("notice=-1"), std::string("notice=1.5"),
        std::string("notice="), std::string("notice"), std::string("seconds=3"),
        std::string("notice=99999999999999999999"),
        "notice=" + std::to_string(kMaxNoticeSeconds + 1),
        "notice=1&reason=" + std::string(kMaxNoticeReasonBytes + 1, 'x'),
        std::string("notice=1&reason=%zz")}) {
    INFO(query);
    CHECK(status_of(drain + "?" + query, "POST") == 400);
  }
  CHECK(status_of("/api/v1/runs/job/nodes/a/exclude?notice=5", "POST") == 400);
  CHECK(status_of("/api/v1/runs/job/restart?notice=5", "POST") == 400);
}

TEST_CASE("http routes: a link is made with POST and followed with GET", "[unit][http]") {
  CHECK(std::holds_alternative<NewLogin>(*find_route({"POST", "/api/v1/login"})));
  CHECK(status_of("/api/v1/login") == 405);
  CHECK(std::get<Login>(*find_route({"GET", "/login?secret=0a"})).secret == "0a");
  CHECK(status_of("/login") == 400);
  CHECK(status_of("/login?x=0a") == 400);
  CHECK(status_of("/login?secret=0a", "POST") == 405);
}

TEST_CASE("http routes: a rank's log is read with GET, its stacks are asked for with POST",
          "[unit][http]") {
  const auto log = std::get<RankQuestion>(
      *find_route({"GET", "/api/v1/runs/a%20b/ranks/7/log?stream=stderr&offset=-99&attempt=2"}));
  CHECK(log.id == "a b");
  CHECK(log.rank == 7);
  CHECK(log.asked.what == NodeAsked::What::Log);
  CHECK(log.asked.from_stderr);
  CHECK(log.asked.offset == -99);
  CHECK(log.asked.attempt == 2);
  const auto plain = std::get<RankQuestion>(*find_route({"GET", "/api/v1/runs/job/ranks/0/log"}));
  CHECK_FALSE(plain.asked.from_stderr);
  const auto stacks =
      std::get<RankQuestion>(*find_route({"POST", "/api/v1/runs/job/ranks/0/stacks"}));
  CHECK(stacks.asked.what == NodeAsked::What::Stacks);
  CHECK(status_of("/api/v1/runs/job/ranks/0/stacks") == 405);
  CHECK(status_of("/api/v1/runs/job/ranks/0/log", "POST") == 405);
  for (const char* target :
       {"/api/v1/runs/job/ranks/-1/log", "/api/v1/runs/job/ranks/x/log",
        "/api/v1/runs/job/ranks//log", "/api/v1/runs/job/ranks/0/log?offset=x",
        "/api/v1/runs/job/ranks/0/log?attempt=-1", "/api/v1/runs/job/ranks/0/log?stream=both",
        "/api/v1/runs/job/ranks/99999999999999999999/log"})
    CHECK(status_of(target) == 400);
  CHECK(status_of("/api/v1/runs/job/ranks/0/elsewhere") == 404);
  CHECK(status_of("/api/v1/runs/job/ranks/0") == 404);
}

TEST_CASE("http host: a browser must name this machine", "[unit][http]") {
  for (const char* host : {"localhost", "localhost:9400", "LocalHost:9400", "127.0.0.1:9400",
                           "127.3.2.1", "[::1]:9400"})
    CHECK(names_loopback(host));
  for (const char* host : {"", "example.org", "localhost.example.org", "10.0.0.1:9400", "[::1",
                           "evil:localhost", "127.0.0.1.example.org"})
    CHECK_FALSE(names_loopback(host));
}

TEST_CASE("http address: a port alone is for this machine", "[unit][http]") {
  CHECK(parse_address("9400")->port == 9400);
  CHECK(parse_address("9400")->address.empty());
  CHECK(parse_address("0")->port == 0);
  CHECK(parse_address("0.0.0.0:80")->address == "0.0.0.0");
  CHECK(parse_address("[::1]:80")->address == "::1");
  for (const char* text : {"9400", "127.0.0.1:80", "127.9.9.9:80", "[::1]:80"})
    CHECK(is_loopback(*parse_address(text)));
  for (const char* text : {"0.0.0.0:80", "[::]:80", "10.0.0.1:80", "[::ffff:127.0.0.1]:80"})
    CHECK_FALSE(is_loopback(*parse_address(text)));
  for (const char* text : {"", "x", "70000", "-1", "::1:80", "host:80", ":80",
                           "127.0.0.1:", "127.0.0.1:99999", "[::1]"})
    CHECK_THAT(parse_address(text).error().reason, Catch::Contains(std::string("'") + text));
}

}  // namespace muster::http::testing
