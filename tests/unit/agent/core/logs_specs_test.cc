#include "agent/core/logs_specs.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace muster {
namespace {

using Catch::Contains;
using nlohmann::json;

struct LogsSpecsTest {
  LogsSpecsTest() {
    options.local_world_size = 2;
    options.log.specs = LogsSpecsOptions{.name = "mine", .command = {"python"}, .log_dir = "logs"};
  }
  // An answer of the program. The members of `change` are added to it, or removed if they are null.
  std::string answer(const json& change = json::object()) const {
    json whole{{"stdouts", {{"0", "a.out"}, {"1", ""}}},
               {"stderrs", {{"0", "a.err"}, {"1", "/dev/null"}}},
               {"tee_stdouts", {{"0", "a.out"}}},
               {"tee_stderrs", json::object()},
               {"error_files", {{"0", "a.json"}}},
               {"filtered_stdout", "f.out"},
               {"filtered_stderr", ""},
               {"environment", json::array()}};
    for (int i = 0; i < 2; ++i)
      whole["environment"].push_back(
          {{"set", {{"TORCHELASTIC_ERROR_FILE", "e" + std::to_string(i)}}}, {"unset", {"RANK"}}});
    whole.merge_patch(change);
    return whole.dump() + "\n";
  }
  std::string error(const std::string& line) const {
    const auto dest = read_logs_dest(line, options);
    REQUIRE_FALSE(dest.has_value());
    return dest.error().text;
  }
  AgentOptions options;
};

TEST_CASE_METHOD(LogsSpecsTest, "logs_specs: the plug-in is made with what torchrun gives it",
                 "[unit][agent]") {
  options.log.redirects = {.all = {.out = true, .err = true}};
  options.log.tee = {.by_local_rank = {{0, {.out = true}}, {1, {.err = true}}}, .per_rank = true};
  options.log.local_ranks_filter = {0, 3};
  const std::string line = logs_specs_begin(*options.log.specs, options.log);
  CHECK(line.find('\n') == line.size() - 1);
  CHECK(json::parse(line) == json{{"name", "mine"},
                                  {"log_dir", "logs"},
                                  {"redirects", 3},
                                  {"tee", {{"0", 1}, {"1", 2}}},
                                  {"local_ranks_filter", {0, 3}}});
}

TEST_CASE_METHOD(LogsSpecsTest, "logs_specs: options that were not given are null",
                 "[unit][agent]") {
  options.log.specs->log_dir.clear();
  const json line = json::parse(logs_specs_begin(*options.log.specs, options.log));
  CHECK(line["log_dir"].is_null());
  CHECK(line["local_ranks_filter"].is_null());
  CHECK(line["redirects"] == 0);
}

TEST_CASE_METHOD(LogsSpecsTest, "logs_specs: a name that is not UTF-8 makes a line all the same",
                 "[unit][agent]") {
  options.log.specs->name = "m\xff";
  CHECK(json::parse(logs_specs_begin(*options.log.specs, options.log))["name"] == "m\xef\xbf\xbd");
}

TEST_CASE_METHOD(LogsSpecsTest, "logs_specs: the request has the variables of every worker",
                 "[unit][agent]") {
  const std::string line = logs_specs_request({{{"RANK", "4"}, {"A", "\n"}}, {{"RANK", "5"}}});
  CHECK(line.find('\n') == line.size() - 1);
  CHECK(json::parse(line) == json{{"envs", {{{"RANK", "4"}, {"A", "\n"}}, {{"RANK", "5"}}}}});
}

TEST_CASE_METHOD(LogsSpecsTest, "logs_specs: the plug-in reports that it is ready, or an error",
                 "[unit][agent]") {
  CHECK(read_logs_specs_ready("{\"ready\": true}\n").has_value());
  CHECK(read_logs_specs_ready("{\"error\": \"no such\"}\n").error().text == "no such");
  CHECK_THAT(read_logs_specs_ready("{\"error\": \"\"}\n").error().text, Contains("without a text"));
  CHECK_THAT(read_logs_specs_ready("Traceback\n").error().text, Contains("something else"));
  CHECK_FALSE(read_logs_specs_ready("").has_value());
}

TEST_CASE_METHOD(LogsSpecsTest, "logs_specs: an answer is read whole", "[unit][agent]") {
  const auto dest = read_logs_dest(answer(), options);
  REQUIRE(dest.has_value());
  CHECK(dest->stdouts == std::map<int, std::string>{{0, "a.out"}, {1, ""}});
  CHECK(dest->stderrs == std::map<int, std::string>{{0, "a.err"}, {1, "/dev/null"}});
  CHECK(dest->tee_stdouts == std::map<int, std::string>{{0, "a.out"}});
  CHECK(dest->tee_stderrs.empty());
  CHECK(dest->error_files == std::map<int, std::string>{{0, "a.json"}});
  CHECK(dest->filtered_stdout == "f.out");
  CHECK(dest->filtered_stderr.empty());
  REQUIRE(dest->environment.size() == 2);
  CHECK(dest->environment[1] == EnvironmentChanges{{{"TORCHELASTIC_ERROR_FILE", "e1"}}, {"RANK"}});
}

TEST_CASE_METHOD(LogsSpecsTest,
                 "logs_specs: the answer must name the streams of every worker of the node",
                 "[unit][agent]") {
  CHECK_THAT(error(answer({{"stdouts", {{"1", nullptr}}}})),
             Contains("stdouts") && Contains("{0}") && Contains("2 workers"));
  CHECK_THAT(error(answer({{"stderrs", {{"2", "x"}}}})), Contains("{0, 1, 2}"));
  CHECK_THAT(error(answer({{"stdouts", {{"1", nullptr}, {"-1", "x"}}}})), Contains("{-1, 0}"));
  // As in torchrun, the other members need no complete set of ranks.
  CHECK(read_logs_dest(answer({{"tee_stdouts", {{"7", "x"}}}}), options).has_value());
}

TEST_CASE_METHOD(LogsSpecsTest,
                 "logs_specs: an answer without the file for filtered lines is refused",
                 "[unit][agent]") {
  options.log.duplicate_stdout_filters = {"loss"};
  CHECK(read_logs_dest(answer(), options).has_value());
  options.log.duplicate_stderr_filters = {"error"};
  CHECK_THAT(error(answer()), Contains("filtered_stderr is empty"));
}

TEST_CASE_METHOD(LogsSpecsTest,
                 "logs_specs: an answer of the wrong shape is an error, never a plan",
                 "[unit][agent]") {
  CHECK_THAT(error("{\"error\": \"it broke\"}"), Contains("it broke"));
  for (const char* field : {"stdouts", "stderrs", "tee_stdouts", "tee_stderrs", "error_files",
                            "filtered_stdout", "filtered_stderr"}) {
    CHECK_THAT(error(answer({{field, nullptr}})), Contains(field));
    CHECK_THAT(error(answer({{field, json::array()}})), Contains(field));
  }
  CHECK_THAT(error(answer({{"tee_stdouts", {{"first", "x"}}}})), Contains("tee_stdouts[first]"));
  CHECK_THAT(error(answer({{"tee_stdouts", {{"1 ", "x"}}}})), Contains("tee_stdouts[1 ]"));
  CHECK_THAT(error(answer({{"error_files", {{"0", 5}}}})), Contains("error_files[0]"));
  CHECK_THAT(error(answer({{"error_files", {{"0", std::string("a\0b", 3)}}}})),
             Contains("error_files[0]"));
  const json one{{"set", json::object()}, {"unset", json::array()}};
  for (const json& wrong :
       {json(), json::array({one}), json::array({one, one, one}), json::array({one, 1}),
        json::array({one, {{"set", 1}, {"unset", json::array()}}}),
        json::array({one, {{"set", json::object()}, {"unset", "RANK"}}}),
        json::array({one, {{"set", {{"A=B", "x"}}}, {"unset", json::array()}}}),
        json::array({one, {{"set", {{"", "x"}}}, {"unset", json::array()}}}),
        json::array({one, {{"set", {{"A", 1}}}, {"unset", json::array()}}}),
        json::array({one, {{"set", json::object()}, {"unset", {1}}}})}) {
    INFO(wrong.dump());
    CHECK_THAT(error(answer({{"environment", wrong}})), Contains("environment"));
  }
}

}  // namespace
}  // namespace muster
