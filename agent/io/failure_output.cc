#include "agent/io/failure_output.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <string_view>
#include <utility>

#include <spdlog/spdlog.h>

#include "agent/io/error_file_io.h"
#include "agent/io/worker_group.h"
#include "base/system/clock.h"

namespace muster {
namespace {

int utc_offset_s() {
  const time_t now = ::time(nullptr);
  tm local{};
  return ::localtime_r(&now, &local) == nullptr ? 0 : static_cast<int>(local.tm_gmtoff);
}

void write_or_log(const std::string& path, const std::string& text, std::string_view what) {
  if (const auto error = write_whole_file(path, text))
    spdlog::error("cannot write {} to {}: {}", what, path, error.message());
}

/// As https://no-color.org asks.
bool has_colours(int console) {
  const char* const none = ::getenv("NO_COLOR");
  const char* const term = ::getenv("TERM");
  return ::isatty(console) == 1 && (none == nullptr || *none == '\0') && term != nullptr &&
         std::string_view(term) != "dumb";
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

ExitReport make_report(const AgentOptions& options, std::vector<ExplainedEnd> ends,
                       std::int64_t started_ms, std::optional<EndCause> cause,
                       EarlierAttempts earlier, std::string advice) {
  return {{.title = options.entry_point,
           .host = host_name(),
           .utc_offset_s = utc_offset_s(),
           .started_ms = started_ms,
           .now_ms = wall_ms(),
           .only_first = options.runs_path,
           .coloured = has_colours(STDERR_FILENO),
           .cause = std::move(cause),
           .earlier = std::move(earlier),
           .advice = std::move(advice)},
          std::move(ends)};
}

void write_report_files(const AgentOptions& options, const ExitReport& report) {
  if (!options.failure_report.empty())
    write_or_log(options.failure_report, report.json() + "\n", "the failure report");
  if (options.own_error_file.empty()) return;
  const ExplainedEnd* first = report.first_failure();
  const std::string original = first == nullptr ? "" : first->error_text;
  write_or_log(options.own_error_file, report.error_file(original), "the error file");
}

void report_lost_process(const AgentOptions& options, const LostProcess& lost) {
  if (options.failure_report.empty() && options.own_error_file.empty()) return;
  std::vector<ExplainedEnd> ends;
  ends.reserve(lost.workers.size());
  for (const WorkerEnd& worker : lost.workers)
    ends.push_back({worker});
  write_report_files(options, make_report(options, std::move(ends), 0, lost.cause, lost.earlier));
}

void report_early_end(const AgentOptions& options, const EndCause& cause) {
  if (options.failure_report.empty() && options.own_error_file.empty()) return;
  write_report_files(options, make_report(options, {}, 0, cause));
}

}  // namespace muster
