#include "agent/io/failure_output.h"

#include <time.h>

#include <cstdio>
#include <string_view>
#include <utility>

#include <spdlog/spdlog.h>

#include "agent/core/exit_report.h"
#include "agent/io/error_file_io.h"

namespace muster {
namespace {

std::string variable(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string& entry : environment)
    if (entry.size() > name.size() && entry.compare(0, name.size(), name) == 0 &&
        entry[name.size()] == '=')
      return entry.substr(name.size() + 1);
  return {};
}

int utc_offset_s() {
  const time_t now = ::time(nullptr);
  tm local{};
  return ::localtime_r(&now, &local) == nullptr ? 0 : static_cast<int>(local.tm_gmtoff);
}

void write_or_complain(const std::string& path, const std::string& text, std::string_view what) {
  if (const auto error = write_file_atomically(path, text))
    spdlog::error("cannot write {} to {}: {}", what, path, error.message());
}

}  // namespace

int report_failure(const AgentOptions& options, const WorkerGroup& group, const std::string& host,
                   const FinishReport& logs, const std::vector<std::string>& environment) {
  ReportOptions facts{.title = options.entry_point, .host = host, .utc_offset_s = utc_offset_s()};
  std::vector<WorkerEnd> ends = group.ends(&facts.started_ms);
  for (WorkerEnd& end : ends)
    if (const auto tail = logs.stderr_tails.find(end.local_rank); tail != logs.stderr_tails.end()) {
      end.stderr_known = true;
      end.stderr_tail = tail->second;
    }
  const ExitReport report(facts, std::move(ends));
  const WorkerEnd* cause = report.first_failure();
  if (cause == nullptr) return 1;

  // The line that scripts look for, and the block below it: torchrun's.
  std::fprintf(stderr, "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: %s\n",
               report.text().c_str());
  if (!options.failure_report.empty())
    write_or_complain(options.failure_report, report.json() + "\n", "the failure report");
  if (const std::string path = variable(environment, "TORCHELASTIC_ERROR_FILE"); !path.empty()) {
    const std::string original = read_error_file_at(cause->error_file).value_or("");
    write_or_complain(path, report.error_file(original), "the first failure");
  }
  if (!options.propagate_exit_code) return 1;
  return cause->killed ? 128 + cause->code : cause->code;
}

}  // namespace muster
