// Reports of nodes and questions to nodes: messages, limits, and how a run service handles them.
#include "rendezvous/rounds/node_report.h"

#include <limits>
#include <string>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "rendezvous/host/node_reports.h"
#include "rendezvous/http/run_view_json.h"
#include "tests/unit/rendezvous/host/run_service_fixture.h"

namespace muster::testing {

namespace {

using Json = nlohmann::json;
using Catch::Contains;

std::string json_of(const NativeRequest& request) {
  return encode(request).substr(1 + kNativeLengthBytes);
}
std::string json_of(const NativeMessage& message) {
  return encode(message).substr(kNativeLengthBytes);
}

FailureReport failure() {
  return {.round = 3,
          .local_rank = 1,
          .rank = 9,
          .pid = 4711,
          .exit = "exited with 3",
          .because = "it hung",
          .message = "ValueError: boom",
          .stderr_end = "line 1\nline 2\n"};
}

NodeReport full_report() {
  NodeReport report{.round = 3, .starts = 2, .workers = 40};
  for (int i = 0; i < static_cast<int>(kMaxReportedWorkers); ++i)
    report.listed.push_back(
        {.local_rank = i,
         .state = i == 1 ? WorkerReport::State::Failed : WorkerReport::State::Running,
         .pid = 100 + i,
         .exit_code = i == 1 ? -9 : 0,
         .step = 1'000'000 + i,
         .progress_before = 5s});
  report.failure = failure();
  report.zygote_bytes = 300'000'000;
  return report;
}

std::string error_of(const Json& json) {
  const auto decoded = decode_native_request(json.dump(), {});
  return decoded ? std::string() : describe(decoded.error());
}

}  // namespace

TEST_CASE("node report: a report with all fields is read as it was written", "[unit][rendezvous]") {
  const std::string json = json_of(NativeRequest(full_report()));
  const auto decoded = decode_native_request(json, ConnectionId{7});
  REQUIRE(decoded.has_value());
  const auto& report = std::get<NodeReport>(*decoded);
  CHECK(report.from.value == 7);
  CHECK(report.round == 3);
  CHECK(report.starts == 2);
  CHECK(report.workers == 40);
  CHECK(report.listed == full_report().listed);
  CHECK(report.failure == failure());
  CHECK(report.zygote_bytes == 300'000'000);
  CHECK(json_of(*decoded) == json);
}

TEST_CASE("node report: the largest texts of any bytes fit a message", "[unit][rendezvous]") {
  for (const char byte : {'x', '\x01', '\xff', '"'}) {
    NodeReport report = full_report();
    const std::string text(10 * kMaxReportTextBytes, byte);
    report.failure->exit = report.failure->because = text;
    report.failure->message = report.failure->stderr_end = text;
    const auto decoded = decode_native_request(json_of(NativeRequest(report)), {});
    REQUIRE(decoded.has_value());
    CHECK(std::get<NodeReport>(*decoded).failure->stderr_end.size() <= kMaxReportTextBytes);
  }
}

TEST_CASE("node report: the end of a long stderr and the beginning of a long message are sent",
          "[unit][rendezvous]") {
  NodeReport report = full_report();
  std::string text = "begin\xc3\xa9";
  while (text.size() < 3 * kMaxReportTextBytes)
    text += "\xc3\xa9";
  report.failure->message = report.failure->stderr_end = text + "end";
  const auto decoded = decode_native_request(json_of(NativeRequest(report)), {});
  REQUIRE(decoded.has_value());
  const FailureReport& sent = *std::get<NodeReport>(*decoded).failure;
  CHECK_THAT(sent.message, Catch::StartsWith("begin\xc3\xa9"));
  CHECK_THAT(sent.stderr_end, Catch::EndsWith("\xc3\xa9"
                                              "end"));
  CHECK_THAT(sent.stderr_end, !Contains("\xef\xbf\xbd"));  // No character was cut in two.
}

TEST_CASE("node report: a value over a limit is refused, and the error names the field",
          "[unit][rendezvous]") {
  const Json good = Json::parse(json_of(NativeRequest(full_report())));
  CHECK(error_of(good).empty());
  Json bad = good;
  bad["listed"].push_back(bad["listed"][0]);
  CHECK_THAT(error_of(bad), Contains("values") || Contains("listed"));
  bad = good;
  for (auto& worker : bad["listed"])
    worker = {{"local_rank", 0}, {"state", "running"}};
  CHECK(error_of(bad).empty());
  bad["listed"].push_back(bad["listed"][0]);
  CHECK(error_of(bad) == "field listed: more than 32 elements");
  bad = good;
  bad["listed"][3]["local_rank"] = -1;
  CHECK_THAT(error_of(bad), Contains("listed[3].local_rank"));
  bad = good;
  bad["listed"][3] = 5;
  CHECK_THAT(error_of(bad), Contains("a list of objects is wanted"));
  bad = good;
  bad["listed"] = "none";
  CHECK_THAT(error_of(bad), Contains("a list is wanted"));
  bad = good;
  bad["failure"]["stderr_end"] = std::string(kMaxReportTextBytes + 1, 'x');
  CHECK(error_of(bad) == "field failure.stderr_end: longer than 4096 bytes");
  bad = good;
  bad["listed"][0]["progress_before_ns"] = std::numeric_limits<std::int64_t>::max();
  CHECK_THAT(error_of(bad), Contains("progress_before_ns"));
}

TEST_CASE("node questions: both kinds and both answers are read as they were written",
          "[unit][rendezvous]") {
  NodeAsked log{.to = {}, .number = 12, .what = NodeAsked::What::Log, .local_rank = 3};
  log.from_stderr = true;
  log.offset = -16'384;
  log.attempt = 2;
  NodeAsked stacks{.to = {}, .number = 13, .what = NodeAsked::What::Stacks, .local_rank = 1};
  for (const NodeAsked& asked : {log, stacks}) {
    const std::string json = json_of(NativeMessage(asked));
    const auto decoded = decode_native_message(json);
    REQUIRE(decoded.has_value());
    CHECK(json_of(*decoded) == json);
  }
  NodeAnswered piece{.from = {}, .number = 12, .error = {}, .bytes = {}, .offset = 7};
  for (int i = 0; i < static_cast<int>(kMaxPieceBytes); ++i)
    piece.bytes += static_cast<char>(i % 256);
  piece.size = 1'000'000'000'000;
  piece.attempt = 2;
  const auto decoded = decode_native_request(json_of(NativeRequest(piece)), {});
  REQUIRE(decoded.has_value());
  CHECK(std::get<NodeAnswered>(*decoded).bytes == piece.bytes);
  CHECK(std::get<NodeAnswered>(*decoded).size == piece.size);
  const NodeAnswered refused{.from = {}, .number = 13, .error = "no such worker"};
  const auto why = decode_native_request(json_of(NativeRequest(refused)), {});
  REQUIRE(why.has_value());
  CHECK(std::get<NodeAnswered>(*why).error == "no such worker");
  Json large = Json::parse(json_of(NativeRequest(piece)));
  large["base64"] = large["base64"].get<std::string>() + "AAAA";
  CHECK_THAT(error_of(large), Contains("base64"));
  large["base64"] = "?";
  CHECK(error_of(large) == "field base64: not base64");
}

TEST_CASE("node reports: a node may report eight times at once, then twice a second",
          "[unit][rendezvous]") {
  ReportLimiter limiter;
  Instant now{1h};
  int admitted = 0;
  for (int i = 0; i < 100; ++i)
    admitted += limiter.admit(now) ? 1 : 0;
  CHECK(admitted == kReportBurst);
  CHECK_FALSE(limiter.admit(now + 400ms));
  CHECK(limiter.admit(now + 1s));
}

TEST_CASE("node reports: their memory is bounded, and the account returns to 0",
          "[unit][rendezvous]") {
  std::size_t total = 0;
  {
    NodeReports reports(total);
    NodeReport large = full_report();
    large.failure->stderr_end.assign(kMaxReportTextBytes, 'x');
    large.failure->because = large.failure->message = large.failure->stderr_end;
    for (int i = 0; i < 20'000; ++i) {
      large.failure->round = i;
      reports.add("node" + std::to_string(i), large, Instant{1h});
    }
    CHECK(total <= kMaxReportBytes + kMaxReportedFailures * 4 * kMaxReportTextBytes);
    CHECK(reports.find("node0"));
    CHECK(reports.failure_of("node0", 0));  // The first failure is kept, because people need it.
    CHECK_FALSE(reports.failure_of("node0", 1));
    reports.remove("node0");
    CHECK_FALSE(reports.find("node0"));
    CHECK(reports.failure_of("node0", 0));
  }
  CHECK(total == 0);
}

TEST_CASE_METHOD(RunServiceTest, "reports: a node's report is in the views of its run",
                 "[unit][rendezvous]") {
  two_in_a_round();
  NodeReport report = full_report();
  report.round = report.failure->round = 0;
  CHECK(tell(2, report).close.empty());
  tell(2, WorkersFailed{{}, 0, "rank 1 exited with 3"});
  take();
  const auto view = service->view_run("job", {0, 10}, at());
  REQUIRE(view.has_value());
  CHECK_FALSE(view->nodes.at(0).report);
  REQUIRE(view->nodes.at(1).report);
  CHECK(view->nodes.at(1).report->report.listed.size() == kMaxReportedWorkers);
  REQUIRE(view->first_failure_report);
  CHECK(view->first_failure_report->stderr_end == "line 1\nline 2\n");
  // The node reads the worker's error file later, and may no longer be a member then.
  report.failure->message = "ValueError: later";
  tell(2, report);
  CHECK(service->view_run("job", {0, 10}, at())->first_failure_report->message ==
        "ValueError: later");
}

TEST_CASE_METHOD(RunServiceTest, "reports: two of them tell how fast a node's ranks are",
                 "[unit][rendezvous]") {
  two_in_a_round();
  NodeReport report{.round = 0, .starts = 1, .workers = 1};
  report.listed = {{.state = WorkerReport::State::Running, .step = 40, .progress_before = 0s}};
  tell(2, report);
  at(10s);
  report.listed[0].step = 65;
  tell(2, report);
  const auto view = service->view_run("job", {0, 10}, at());
  REQUIRE(view->steps.rates.size() == 1);
  CHECK(view->steps.rates[0].mean() == Approx(2.5));
  CHECK(view->steps.rates[0].slowest_rank == view->nodes.at(1).first_rank);
  const Json json = Json::parse(steps_json(*view));
  CHECK(json.at("interval_seconds") == 15.0);
  CHECK(json.at("rates").at(0).at("steps_per_second") == 2.5);
  CHECK(json.at("rates").at(0).at("slowest_rank") == view->nodes.at(1).first_rank.value());
}

TEST_CASE_METHOD(RunServiceTest,
                 "reports: a new node does not get the report of one with its name that has left",
                 "[unit][rendezvous]") {
  two_in_a_round();
  tell(2, full_report());
  tell(2, NodeLeft{});
  CHECK(tell(2, full_report()).close.empty());
  hello(5);
  NodeJoined joined;
  joined.name = {"host2", 2, 0};
  joined.run = for_nodes(2);
  tell(5, joined);
  take();
  const auto view = service->view_run("job", {0, 10}, at());
  REQUIRE(view->nodes.size() == 2);
  for (const NodeView& node : view->nodes)
    CHECK_FALSE(node.report);
}

TEST_CASE_METHOD(RunServiceTest, "reports: a report of a client that is no member is not kept",
                 "[unit][rendezvous]") {
  two_in_a_round();
  hello(3);
  CHECK(tell(3, full_report()).close.empty());
  const auto view = service->view_run("job", {0, 10}, at());
  for (const NodeView& node : view->nodes)
    CHECK_FALSE(node.report);
}

TEST_CASE_METHOD(RunServiceTest,
                 "questions: a rank's node is asked, and its answer comes back once",
                 "[unit][rendezvous]") {
  for (const std::uint32_t client : {1, 2}) {
    NativeHello greeting{kNativeProtocolVersion, "9.9", "job", true};
    greeting.answers = true;
    tell(client, greeting);
    join(client, 2);
  }
  messages<PrepareStore>();
  tell(1, StoreReady{{}, 0, "10.0.0.1", 29500});
  REQUIRE(messages<RoundComplete>().size() == 2);
  CHECK_FALSE(service->ask("other", 0, {.to = {}, .number = 1}, at()));
  CHECK_THAT(*service->ask("job", 2, {.to = {}, .number = 1}, at()), Contains("has rank 2"));
  CHECK(service->ask("job", 1, {.to = {}, .number = 5}, at())->empty());
  const auto asked = messages<NodeAsked>();
  REQUIRE(asked.size() == 1);
  CHECK(asked.at(2).number == 5);
  CHECK(asked.at(2).local_rank == 0);
  const auto answers = [&] {
    std::vector<NodeAnswered> found;
    for (const RunEffect& effect : take())
      if (const auto* answer = std::get_if<QuestionAnswered>(&effect))
        found.push_back(answer->answer);
    return found;
  };
  tell(1, NodeAnswered{.from = {}, .number = 5, .error = "from the wrong node"});
  CHECK(answers().empty());
  tell(2, NodeAnswered{.from = {}, .number = 5, .error = {}, .bytes = "log"});
  const auto log = answers();
  REQUIRE(log.size() == 1);
  CHECK((log[0].bytes == "log" && log[0].node == "host2_2_0"));
  tell(2, NodeAnswered{.from = {}, .number = 5, .error = {}, .bytes = "again"});
  CHECK(answers().empty());
  // A question ends when its node's connection closes, or when its caller no longer needs it.
  CHECK(service->ask("job", 1, {.to = {}, .number = 6}, at())->empty());
  CHECK(service->ask("job", 1, {.to = {}, .number = 7}, at())->empty());
  service->forget_question(7);
  service->disconnect({2}, at());
  const auto lost = answers();
  REQUIRE(lost.size() == 1);
  CHECK(lost[0].number == 6);
  CHECK_THAT(lost[0].error, Contains("connection was lost"));
}

TEST_CASE_METHOD(RunServiceTest,
                 "questions: older nodes are not asked, and the number of questions is limited",
                 "[unit][rendezvous]") {
  two_in_a_round();
  CHECK_THAT(*service->ask("job", 0, {.to = {}, .number = 1}, at()),
             Contains("cannot be asked: its muster is an older one"));
  CHECK(messages<NodeAsked>().empty());
}

}  // namespace muster::testing
