// Finds the first failure and its cause from the ends of all workers of the last attempt, and
// writes the report for the user. The text has the layout of torchrun 2.13's, with more information
// in it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/earlier_attempts.h"
#include "agent/core/end_cause.h"
#include "agent/core/error_file.h"
#include "agent/core/worker_end.h"
#include "base/ids.h"

namespace muster {

/// The end of a worker, with the facts that explain it.
struct ExplainedEnd : WorkerEnd {
  std::string error_file;  // The path. Empty: the worker had no error file, or wrote none.
  std::string error_text;  // The beginning of the file, unchanged.
  std::optional<boost::system::result<ErrorRecord, ErrorFileDefect>> error;  // Its parsed content.
  std::string ended_because;    // Why muster ended this worker alone, such as a hang; or empty.
  bool stderr_known = false;    // Captured or redirected: an empty tail means an empty stderr.
  std::string stderr_tail;      // The last lines. Empty: not kept, or the worker wrote none.
  bool tail_is_output = false;  // stdout uses the same pipe, so the tail has lines of both.
  std::string stderr_file;      // The path of its stderr.log. Empty: not redirected.
  std::string stderr_file_end;  // The end of that file, if the worker failed: for the host.
  std::string oom_evidence;  // Evidence that the OOM killer killed it (oom_evidence.h); or empty.
  /// The cgroup whose OOM counter has not risen. Empty: no such counter can be read.
  std::string unchanged_oom_counter;
  std::vector<std::string> notes;  // Further facts that may explain it (failure_notes.h).
};

struct ReportOptions {
  std::string title;  // AgentOptions::entry_point.
  std::string host;
  int utc_offset_s = 0;         // The offset of the local time zone when the report is made.
  std::int64_t started_ms = 0;  // When the attempt began: none of its errors is older.
  std::int64_t now_ms = 0;
  bool only_first = false;        // --run-path: the text shows the first failure only.
  bool coloured = false;          // The text is for a terminal: the cause's line is bold and red.
  std::optional<EndCause> cause;  // Set if no worker's failure was the cause of the job's end.
  EarlierAttempts earlier = {};
  std::string advice = {};  // What the user should do; the text ends with it. Empty: nothing.
};

class ExitReport {
 public:
  /// `ends`: all workers of the attempt, including those that succeeded. A worker without an end
  /// could not be killed: that is a failure.
  ExitReport(ReportOptions options, std::vector<ExplainedEnd> ends);

  /// The failures, in the order in which the workers died. Those that have not ended come last.
  const std::vector<ExplainedEnd>& failures() const { return failures_; }
  /// The root cause: the first failure among the workers that are not victims. If all failed
  /// workers are victims, the first victim. Null if no worker failed.
  const ExplainedEnd* first_failure() const;
  /// True if the worker was alive when muster signalled it to end, and its end can be a consequence
  /// of that signal. False if muster ended this worker alone before.
  bool is_victim(const ExplainedEnd& end) const;

  /// The first failure as one line, for the reports of later attempts. Empty if no worker failed by
  /// itself.
  std::optional<AttemptCause> cause_of(int attempt) const;

  /// The block between the lines of '=', as torchrun's ChildFailedError prints it. A newline comes
  /// before it, and the causes of earlier attempts follow it. Empty if no worker failed.
  std::string text() const;
  /// The same facts for programs: the content of --failure-report.
  std::string json() const;
  /// The content of the agent's own TORCHELASTIC_ERROR_FILE. `original` is the text of the root
  /// cause's error file: it is passed on with the exit code added. If it is not readable, the
  /// record is written from the known facts. ReportOptions::cause takes precedence over workers'
  /// failures.
  std::string error_file(std::string_view original) const;

 private:
  /// When it died; now, if it has not ended.
  std::int64_t end_ms(const ExplainedEnd& end) const;
  /// The second in which the worker failed, as exactly as it is known.
  std::int64_t failed_s(const ExplainedEnd& end) const;
  /// The same for people: the timestamp of its error file, even if recorded_s() refuses it.
  std::int64_t shown_s(const ExplainedEnd& end) const;
  /// The timestamp of its error file, if it lies between the attempt's start and the death. Empty
  /// if the wall clock was set in between.
  std::optional<std::int64_t> recorded_s(const ExplainedEnd& end) const;
  /// The lines about one failure, with `explained` after "traceback :".
  std::string block(std::size_t index, const std::string& explained) const;
  std::string other_blocks() const;
  std::string with_red_cause(std::string block) const;
  std::string explanation(const ExplainedEnd& end) const;
  std::string own_explanation(const ExplainedEnd& end) const;
  std::string victim_text(const ExplainedEnd& end) const;

  ReportOptions options_;
  std::vector<ExplainedEnd> failures_;
  bool clock_was_set_ = false;  // During the attempt: its wall-clock times cannot be compared.
  std::size_t first_ = 0;
};

}  // namespace muster
