#include "agent/io/failure_output.h"

#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "agent/core/exit_report.h"
#include "agent/io/error_file_io.h"

namespace muster {
namespace {

int utc_offset_s() {
  const time_t now = ::time(nullptr);
  tm local{};
  return ::localtime_r(&now, &local) == nullptr ? 0 : static_cast<int>(local.tm_gmtoff);
}

void write_or_complain(const std::string& path, const std::string& text, std::string_view what) {
  if (const auto error = write_whole_file(path, text))
    spdlog::error("cannot write {} to {}: {}", what, path, error.message());
}

ExitReport make_report(const AgentOptions& options, const WorkerGroup* group,
                       const FinishReport& logs, std::optional<EndCause> cause) {
  ReportOptions facts{.title = options.entry_point,
                      .host = host_name(),
                      .utc_offset_s = utc_offset_s(),
                      .now_ms = wall_clock_ms(),
                      .only_first = options.runs_path,
                      .cause = std::move(cause)};
  std::vector<WorkerEnd> ends;
  if (group != nullptr) ends = group->ends(&facts.started_ms);
  for (WorkerEnd& end : ends)
    if (const auto tail = logs.stderr_tails.find(end.local_rank); tail != logs.stderr_tails.end()) {
      end.stderr_known = true;
      end.stderr_tail = tail->second;
    }
  return {std::move(facts), std::move(ends)};
}

void write_files(const AgentOptions& options, const ExitReport& report) {
  if (!options.failure_report.empty())
    write_or_complain(options.failure_report, report.json() + "\n", "the failure report");
  if (options.own_error_file.empty()) return;
  const WorkerEnd* first = report.first_failure();
  const std::string original =
      first == nullptr ? "" : read_error_file_at(first->error_file).value_or("");
  write_or_complain(options.own_error_file, report.error_file(original), "the error file");
}

// Returns the exit code.
int report_failure(const AgentOptions& options, const WorkerGroup& group,
                   const FinishReport& logs) {
  const ExitReport report = make_report(options, &group, logs, std::nullopt);
  const WorkerEnd* cause = report.first_failure();
  if (cause == nullptr) return 1;

  // The line that scripts look for, and the block below it: torchrun's.
  std::fprintf(stderr, "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: %s\n",
               report.text().c_str());
  write_files(options, report);
  if (!options.propagate_exit_code) return 1;
  return cause->killed ? 128 + cause->code : cause->code;
}

void report_other_end(const AgentOptions& options, const EndCause& cause, const WorkerGroup* group,
                      const FinishReport& logs) {
  if (options.failure_report.empty() && options.own_error_file.empty()) return;
  write_files(options, make_report(options, group, logs, cause));
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

int report_outcome(const AgentOptions& options, const JobOutcome& outcome, const WorkerGroup& group,
                   const FinishReport& logs) {
  if (outcome.cause) report_other_end(options, *outcome.cause, &group, logs);
  if (outcome.say == JobOutcome::Say::Warning) spdlog::warn("{}", outcome.text);
  if (outcome.say == JobOutcome::Say::Error) spdlog::error("{}", outcome.text);
  if (!outcome.last_line.empty()) std::fprintf(stderr, "%s\n", outcome.last_line.c_str());
  return outcome.reports_failure ? report_failure(options, group, logs) : outcome.exit_code;
}

void report_early_end(const AgentOptions& options, const EndCause& cause) {
  report_other_end(options, cause, nullptr, {});
}

}  // namespace muster
