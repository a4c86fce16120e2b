#include "agent/core/log_plan.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

const StreamPlan kInherit{StreamTarget::Inherit, "", false};
const StreamPlan kDiscard{StreamTarget::Discard, "", false};
const StreamPlan kTap{StreamTarget::Tap, "", true};
const StreamPlan kSilentTap{StreamTarget::Tap, "", false};

StreamPlan file(const std::string& path, bool tee) {
  return {StreamTarget::File, path, tee};
}

struct LogPlanTest {
  LogPlanTest() {
    options.local_world_size = 2;
    context = {.attempt_dir = "/run/attempt_0",
               .base_global_rank = {4},
               .host = "node1",
               .stderr_is_terminal = true};
  }
  AttemptLogPlan plan() const { return plan_logs(options, context); }
  std::string prefix(std::size_t worker, std::string_view time = "") const {
    std::string text;
    plan().workers[worker].prefix.append_to(text, time);
    return text;
  }

  AgentOptions options;
  LogContext context;
};

TEST_CASE_METHOD(LogPlanTest, "log_plan: by default workers have the terminal, and error files",
                 "[unit][agent]") {
  const AttemptLogPlan plan = this->plan();
  CHECK(plan.directories ==
        std::vector<std::string>{"/run/attempt_0", "/run/attempt_0/0", "/run/attempt_0/1"});
  CHECK(plan.filtered_stdout.empty());
  CHECK(plan.filtered_stderr.empty());
  REQUIRE(plan.workers.size() == 2);
  CHECK(plan.workers[1].local_rank == LocalRank{1});
  CHECK(plan.workers[1].dir == "/run/attempt_0/1");
  CHECK(plan.workers[1].error_file == "/run/attempt_0/1/error.json");
  CHECK(plan.workers[1].out == kInherit);
  CHECK(plan.workers[1].err == kTap);
  CHECK_FALSE(plan.workers[1].one_tap);
}

TEST_CASE_METHOD(LogPlanTest, "log_plan: -r sends to a file, -t to a file and the console",
                 "[unit][agent]") {
  options.log.redirects.all = {.out = true, .err = false};
  options.log.tee.all = {.out = false, .err = true};
  const auto workers = plan().workers;
  CHECK(workers[0].out == file("/run/attempt_0/0/stdout.log", false));
  CHECK(workers[0].err == file("/run/attempt_0/0/stderr.log", true));
  CHECK(workers[1].err == file("/run/attempt_0/1/stderr.log", true));
}

TEST_CASE_METHOD(LogPlanTest, "log_plan: tee wins over redirect for the same stream",
                 "[unit][agent]") {
  options.log.redirects.all = {.out = true, .err = true};
  options.log.tee.all = {.out = true, .err = false};
  CHECK(plan().workers[0].out == file("/run/attempt_0/0/stdout.log", true));
  CHECK(plan().workers[0].err == file("/run/attempt_0/0/stderr.log", false));
}

TEST_CASE_METHOD(LogPlanTest, "log_plan: a map of ranks may have ranks of two digits",
                 "[unit][agent]") {
  options.local_world_size = 12;
  options.log.tee.per_rank = true;
  options.log.tee.by_local_rank = {{11, {.out = true, .err = false}}, {99, {.out = true}}};
  const auto workers = plan().workers;
  REQUIRE(workers.size() == 12);
  CHECK(workers[11].out == file("/run/attempt_0/11/stdout.log", true));
  CHECK(workers[11].err == kTap);
  CHECK(workers[0].out == kInherit);
}

TEST_CASE_METHOD(LogPlanTest, "log_plan: the filter hides ranks from the console, not from files",
                 "[unit][agent]") {
  options.log.local_ranks_filter = {1};
  options.log.tee.all = {.out = true, .err = false};
  const auto workers = plan().workers;
  CHECK(workers[0].out == file("/run/attempt_0/0/stdout.log", false));
  CHECK(workers[1].out == file("/run/attempt_0/1/stdout.log", true));
  CHECK(workers[1].err == kTap);
  // The stream is hidden, but its tail is kept for the failure report.
  CHECK(workers[0].err == kSilentTap);
  options.log.capture_stderr = CaptureStderr::Never;
  CHECK(plan().workers[0].err == kDiscard);
  options.log.tee.all = {};
  CHECK(plan().workers[0].out == kDiscard);
  CHECK(plan().workers[1].out == kInherit);
}

TEST_CASE_METHOD(LogPlanTest, "log_plan: a stderr that is no terminal goes through a pipe",
                 "[unit][agent]") {
  context.stderr_is_terminal = false;
  CHECK(plan().workers[0].err == kTap);
  CHECK(plan().workers[0].out == kInherit);
  options.log.capture_stderr = CaptureStderr::Never;
  CHECK(plan().workers[0].err == kInherit);
  options.log.capture_stderr = CaptureStderr::Always;
  CHECK(plan().workers[0].err == kTap);
  CHECK_FALSE(plan().workers[0].terminal_tap);
}

TEST_CASE_METHOD(LogPlanTest, "log_plan: a stderr that is a terminal goes through a terminal",
                 "[unit][agent]") {
  context.console_is_one_file = true;
  for (const CaptureStderr when : {CaptureStderr::Auto, CaptureStderr::Always}) {
    options.log.capture_stderr = when;
    CHECK(plan().workers[0].err == kTap);
    CHECK(plan().workers[0].one_tap);
    CHECK(plan().workers[0].terminal_tap);
  }
  options.log.capture_stderr = CaptureStderr::Never;
  CHECK(plan().workers[0].err == kInherit);
  CHECK_FALSE(plan().workers[0].terminal_tap);

  options.log.capture_stderr = CaptureStderr::Auto;
  options.log.local_ranks_filter = {1};
  CHECK_FALSE(plan().workers[0].terminal_tap);  // Nobody sees it.
  CHECK(plan().workers[1].terminal_tap);
  options.log.tee.all = {.out = false, .err = true};
  CHECK_FALSE(plan().workers[1].terminal_tap);
}

TEST_CASE_METHOD(LogPlanTest, "log_plan: stdout and stderr of one file go through one pipe",
                 "[unit][agent]") {
  context.stderr_is_terminal = false;
  context.console_is_one_file = true;
  CHECK(plan().workers[0].one_tap);
  CHECK(plan().workers[0].out == kTap);
  CHECK(plan().workers[0].err == kTap);

  SECTION("but not when one of them goes to a file") {
    options.log.redirects.all = {.out = true, .err = false};
    CHECK_FALSE(plan().workers[0].one_tap);
    CHECK(plan().workers[0].err == kTap);
  }
  SECTION("nor when nothing is tapped") {
    options.log.redirects.all = {.out = false, .err = true};
    CHECK_FALSE(plan().workers[0].one_tap);
    CHECK(plan().workers[0].out == kInherit);
  }
  SECTION("nor for a rank that is hidden") {
    options.log.local_ranks_filter = {1};
    CHECK_FALSE(plan().workers[0].one_tap);
    CHECK(plan().workers[0].out == kDiscard);
    CHECK(plan().workers[0].err == kSilentTap);
  }
}

TEST_CASE_METHOD(LogPlanTest, "log_plan: --log-dir /dev/null makes nothing and redirects nothing",
                 "[unit][agent]") {
  options.log.discard = true;
  options.log.redirects.all = options.log.tee.all = {.out = true, .err = true};
  options.log.duplicate_stdout_filters = {"loss"};
  options.log.local_ranks_filter = {1};
  const AttemptLogPlan plan = this->plan();
  CHECK(plan.directories.empty());
  CHECK(plan.filtered_stdout.empty());
  CHECK(plan.workers[0].dir.empty());
  CHECK(plan.workers[0].error_file.empty());
  CHECK(plan.workers[0].out == kInherit);
  CHECK(plan.workers[0].err == kTap);
}

TEST_CASE_METHOD(LogPlanTest, "log_plan: filter files belong to the attempt", "[unit][agent]") {
  options.log.duplicate_stdout_filters = {"loss"};
  CHECK(plan().filtered_stdout == "/run/attempt_0/filtered_stdout.log");
  CHECK(plan().filtered_stderr.empty());
  options.log.duplicate_stderr_filters = {""};
  CHECK(plan().filtered_stderr == "/run/attempt_0/filtered_stderr.log");
}

TEST_CASE_METHOD(LogPlanTest, "log_plan: the prefix is torchrun's, or that of the template",
                 "[unit][agent]") {
  CHECK(prefix(1) == "[default1]:");
  options.role = "trainer";
  CHECK(prefix(0) == "[trainer0]:");
  options.log.prefix_template = "${role_name}/$rank/$local_rank/${host} $$ $nope: ";
  CHECK(prefix(1) == "trainer/5/1/node1 $ $nope: ");
  CHECK_FALSE(plan().workers[0].prefix.needs_time());
  options.log.prefix_template = "${hostname}:${rank}$hostnames ";
  CHECK(prefix(1) == "node1:5$hostnames ");
  options.log.prefix_template = "$time [$rank] ";
  CHECK(plan().workers[0].prefix.needs_time());
  CHECK(prefix(1, "12:34:56.789") == "12:34:56.789 [5] ");
  options.log.prefix_template = "$time$time";
  CHECK(prefix(0, "T") == "TT");
}

TEST_CASE("log_plan: a run id becomes a safe directory name", "[unit][agent]") {
  CHECK(run_dir_name("job-7", "ab12cd34") == "job-7_ab12cd34");
  CHECK(run_dir_name("", "ab12cd34") == "_ab12cd34");
  CHECK(run_dir_name("team/job\n7", "x") == "team_job_7_x");
  CHECK(run_dir_name("../../etc", "x") == ".._.._etc_x");
  CHECK(run_dir_name("\xc3\xa9t\xc3\xa9", "x") == "\xc3\xa9t\xc3\xa9_x");
  CHECK(run_dir_name(std::string(1000, 'a'), "x").size() == 202);
  // A character of two bytes is not cut in the middle.
  CHECK(run_dir_name("a" + std::string(199, 'b') + "\xc3\xa9", "x").size() == 202);
  CHECK(run_dir_name(std::string(199, 'b') + "\xc3\xa9", "x") == std::string(199, 'b') + "_x");
}

TEST_CASE("log_plan: an attempt never uses the directory of another attempt", "[unit][agent]") {
  CHECK(attempt_dir_name(0, {}) == "attempt_0");
  CHECK(attempt_dir_name(3, {"attempt_0", "attempt_1"}) == "attempt_3");
  CHECK(attempt_dir_name(0, {"attempt_0"}) == "attempt_0.1");
  CHECK(attempt_dir_name(0, {"attempt_0", "attempt_0.1", "attempt_0.2"}) == "attempt_0.3");
}

struct ChosenLogsTest : LogPlanTest {
  ChosenLogsTest() {
    dest.stdouts = {{0, "/logs/0.out"}, {1, ""}};
    dest.stderrs = {{0, "/logs/0.err"}, {1, ""}};
    dest.error_files = {{0, "/errors/0.json"}};
    dest.filtered_stdout = "/logs/some.out";
    dest.environment.resize(2);
  }
  AttemptLogPlan plan() const { return plan_logs(options, context, dest); }
  LogsDest dest;
};

TEST_CASE_METHOD(ChosenLogsTest, "log_plan: workers write to the files that a plug-in chooses",
                 "[unit][agent]") {
  options.log.redirects.all = {.out = true, .err = true};  // Only the plug-in uses it.
  dest.environment[0].set = {{"A", "b"}};
  const AttemptLogPlan plan = this->plan();
  CHECK(plan.chosen_by_plugin);
  CHECK(plan.directories.empty());
  CHECK(plan.filtered_stdout.empty());  // No option asked for it.
  REQUIRE(plan.workers.size() == 2);
  CHECK(plan.workers[0].out == file("/logs/0.out", false));
  CHECK(plan.workers[0].err == file("/logs/0.err", false));
  CHECK(plan.workers[0].error_file == "/errors/0.json");
  CHECK(plan.workers[0].dir == "/errors");
  CHECK(plan.workers[0].environment == dest.environment[0]);
  CHECK(plan.workers[1].out == kInherit);
  CHECK(plan.workers[1].err == kTap);
  CHECK(plan.workers[1].error_file.empty());
  CHECK(plan.workers[1].dir.empty());
  CHECK(plan.more_shown.empty());
}

TEST_CASE_METHOD(ChosenLogsTest, "log_plan: /dev/null as a plug-in's file discards the stream",
                 "[unit][agent]") {
  dest.stdouts[0] = dest.stderrs[1] = dest.error_files[0] = "/dev/null";
  dest.tee_stdouts[0] = "/dev/null";  // As torch's own LogsSpecs does.
  dest.stderrs[0] = "here.err";
  const AttemptLogPlan plan = this->plan();
  CHECK(plan.workers[0].out == kDiscard);
  CHECK(plan.workers[0].error_file.empty());
  CHECK(plan.workers[0].dir == ".");
  CHECK(plan.workers[1].err == kDiscard);
  CHECK(plan.more_shown.empty());
}

TEST_CASE_METHOD(ChosenLogsTest, "log_plan: a plug-in may tee a worker's file or another file",
                 "[unit][agent]") {
  dest.tee_stdouts = {{0, "/logs/0.out"}, {1, "/logs/all"}, {5, "/logs/five"}};
  dest.tee_stderrs = {{0, "/logs/0.out"}, {1, ""}};
  const AttemptLogPlan plan = this->plan();
  CHECK(plan.workers[0].out == file("/logs/0.out", true));
  CHECK(plan.workers[0].err == file("/logs/0.err", false));
  CHECK(plan.workers[1].out == kInherit);
  REQUIRE(plan.more_shown.size() == 3);
  CHECK(plan.more_shown[0].file == "/logs/all");
  CHECK(plan.more_shown[0].local_rank == LocalRank{1});
  CHECK_FALSE(plan.more_shown[0].is_stderr);
  std::string text;
  plan.more_shown[1].prefix.append_to(text, "");
  CHECK(text == "[default5]:");
  CHECK(plan.more_shown[2].file == "/logs/0.out");
  CHECK(plan.more_shown[2].is_stderr);
}

TEST_CASE_METHOD(ChosenLogsTest, "log_plan: the end of stderr is kept with a plug-in, too",
                 "[unit][agent]") {
  context.stderr_is_terminal = false;
  context.console_is_one_file = true;
  CHECK(plan().workers[1].one_tap);
  CHECK(plan().workers[1].out == kTap);
  CHECK(plan().workers[1].err == kTap);
  CHECK_FALSE(plan().workers[0].one_tap);
  dest.stdouts[1] = "/logs/1.out";
  CHECK_FALSE(plan().workers[1].one_tap);
  CHECK(plan().workers[1].err == kTap);
}

TEST_CASE_METHOD(ChosenLogsTest, "log_plan: a plug-in's file for filtered lines", "[unit][agent]") {
  options.log.duplicate_stdout_filters = {"loss"};
  CHECK(plan().filtered_stdout == "/logs/some.out");
  CHECK(plan().filtered_stderr.empty());
}

}  // namespace
}  // namespace muster
