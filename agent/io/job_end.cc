#include "agent/io/job_end.h"

#include <optional>
#include <utility>

#include <spdlog/spdlog.h>

#include "agent/io/failure_output.h"

namespace muster {
namespace {

// The wait for a dead worker's pipe that a process outside of muster's process tree still holds.
constexpr Duration kPipeLimit = std::chrono::seconds(2);

void add_tails(std::vector<ExplainedEnd>& ends, const std::map<LocalRank, std::string>& tails) {
  for (ExplainedEnd& end : ends)
    if (const auto tail = tails.find(end.local_rank); tail != tails.end()) {
      end.stderr_known = true;
      end.stderr_tail = tail->second;
    }
}

}  // namespace

void JobEnd::end_attempt(const WorkerGroup& group, int attempt, std::function<void()> done) {
  struct State {
    Ends ends;
    std::optional<AttemptCause> cause;
  };
  auto state = std::make_shared<State>(State{group.ends(), std::nullopt});
  const auto begin = [this, state, attempt, started_ms = group.started_ms()](
                         LogPump& pump, const LogWork::Answer& answer) {
    pump.end_attempt([this, state, attempt, started_ms, answer](const auto& tails) {
      add_tails(state->ends, tails);
      read_error_files(state->ends);
      state->cause = make_report(options_, state->ends, started_ms).cause_of(attempt);
      answer();
    });
  };
  work_.step(begin, [this, state, done = std::move(done)](bool answered) {
    if (answered && state->cause) earlier_.add(std::move(*state->cause));
    if (answered && on_ends_) on_ends_(state->ends);
    done();
  });
}

void JobEnd::read_ends(const WorkerGroup& group, std::function<void(Ends)> done) {
  auto ends = std::make_shared<Ends>(group.ends());
  const auto begin = [ends](LogPump& pump, const LogWork::Answer& answer) {
    pump.finish(kPipeLimit, [ends, answer](const FinishReport& logs) {
      add_tails(*ends, logs.stderr_tails);
      read_error_files(*ends);
      answer();
    });
  };
  // Without an answer, the log thread may still write to `ends`: `done` then gets this copy.
  Ends unread = *ends;
  for (ExplainedEnd& end : unread)
    end.error_file.clear();
  work_.step(begin,
             [this, ends, unread = std::move(unread), done = std::move(done)](bool answered) {
               if (answered && on_ends_) on_ends_(*ends);
               done(answered ? *ends : unread);
             });
}

void JobEnd::report(const JobOutcome& outcome, const WorkerGroup& group, const Ends& ends,
                    std::function<void()> clean_up, std::function<void(int exit_code)> done) {
  const auto with = [&](const std::optional<EndCause>& cause) {
    return make_report(options_, ends, group.started_ms(), cause, earlier_, outcome.advice);
  };
  auto report = std::make_shared<ExitReport>(with(outcome.cause));
  if (outcome.cause_without_failure && report->first_failure() == nullptr)
    *report = with(outcome.cause_without_failure);
  const bool has_files = outcome.cause || outcome.reports_failure;
  const int exit_code = print_outcome(outcome, *report);
  work_.run(
      [&options = options_, report, has_files, clean_up = std::move(clean_up)] {
        if (has_files) write_report_files(options, *report);
        clean_up();
      },
      [this, exit_code, done = std::move(done)](bool) {
        flush_console([exit_code, done] { done(exit_code); });
      });
}

// Returns the exit code. After a worker's failure it is 1 as in torchrun, or with
// --exit-code=propagate the first failure's.
int JobEnd::print_outcome(const JobOutcome& outcome, const ExitReport& report) {
  if (outcome.log_level == JobOutcome::LogLevel::Warning) spdlog::warn("{}", outcome.text);
  if (outcome.log_level == JobOutcome::LogLevel::Error) spdlog::error("{}", outcome.text);
  if (outcome.cause && !earlier_.empty()) spdlog::error("{}", earlier_.text());
  if (outcome.cause && !outcome.advice.empty() && !outcome.text.ends_with(outcome.advice))
    spdlog::error("{}", outcome.advice);
  if (!outcome.last_line.empty()) work_.print(outcome.last_line + "\n");
  if (!outcome.reports_failure) return outcome.exit_code;
  const ExplainedEnd* const cause = report.first_failure();
  if (cause == nullptr) return outcome.exit_code_of_job.value_or(1);
  // torchrun's line, which scripts look for, and torchrun's block below it. The workers' messages
  // may be large.
  work_.pump().print(
      LogStream::Err,
      "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: " + report.text() + "\n",
      Keep::Always);
  if (outcome.exit_code_of_job) return *outcome.exit_code_of_job;
  if (!options_.propagate_exit_code || !cause->has_ended()) return 1;
  return cause->exit.killed ? 128 + cause->exit.status : cause->exit.status;
}

void JobEnd::flush_console(std::function<void()> done) {
  const auto begin = [](LogPump& pump, const LogWork::Answer& answer) {
    pump.flush([answer](const ShownReport&) { answer(); });
  };
  work_.step(begin, [done = std::move(done)](bool) { done(); });
}

}  // namespace muster
