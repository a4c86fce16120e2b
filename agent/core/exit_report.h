// Who failed first, and why: from how every worker of the last attempt ended to the text that the
// user reads. The text has the shape of torchrun 2.13's, and says more inside it.
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
#include "rendezvous/core/ids.h"

namespace muster {

/// The end of a worker, and what explains it.
struct ExplainedEnd : WorkerEnd {
  std::string error_file;  // Path; empty: the worker had none, or wrote none.
  std::string error_text;  // The beginning of the file, as it is.
  std::optional<boost::system::result<ErrorRecord, ErrorFileDefect>> error;  // What it held.
  std::string ended_because;    // Why muster ended it and no other: it hung, say; or empty.
  bool stderr_known = false;    // It was captured or redirected, so what is empty was empty.
  std::string stderr_tail;      // The last lines; empty: not kept, or there were none.
  bool tail_is_output = false;  // One pipe serves stdout, too, so these are the lines of both.
  std::string stderr_file;      // Path of its stderr.log; empty: not redirected.
  std::string stderr_file_end;  // The end of that file, if the worker failed: for the host.
  std::string oom_evidence;  // That the kernel's OOM killer killed it (oom_evidence.h); or empty.
  std::string quiet_oom_counter;  // Where it counts, and has not; empty: no counter can be read.
};

struct ReportOptions {
  std::string title;  // AgentOptions::entry_point.
  std::string host;
  int utc_offset_s = 0;         // Of the local time zone, when the report is made.
  std::int64_t started_ms = 0;  // When the attempt began: no error of it is older.
  std::int64_t now_ms = 0;
  bool only_first = false;        // --run-path: the text shows the first failure alone.
  std::optional<EndCause> cause;  // It was no worker's failure; what failed is a consequence.
  EarlierAttempts earlier = {};
};

class ExitReport {
 public:
  /// `ends`: all workers of the attempt, those that succeeded included.
  ExitReport(ReportOptions options, std::vector<ExplainedEnd> ends);

  /// The failures, in the order of the deaths.
  const std::vector<ExplainedEnd>& failures() const { return failures_; }
  /// The cause: the first to fail among those that failed by themselves; a worker that only did as
  /// muster told it is a victim, and the cause only if there is nobody else. Null if none failed.
  const ExplainedEnd* first_failure() const;
  /// It was told to end while it lived, and its end can follow from that.
  bool is_victim(const ExplainedEnd& end) const;

  /// The first failure in a line, for the reports of later attempts; nothing if no worker failed by
  /// itself.
  std::optional<AttemptCause> cause_of(int attempt) const;

  /// The block between the lines of '=', as torchrun's ChildFailedError prints it, with a newline
  /// before, and below it the causes of earlier attempts. Empty if none failed.
  std::string text() const;
  /// For --failure-report: the same facts, for programs.
  std::string json() const;
  /// For the agent's own TORCHELASTIC_ERROR_FILE. `original`: the text of the cause's error file,
  /// passed on with the exit code added; without a readable one, a record is made of what is known.
  /// ReportOptions::cause comes before the workers'.
  std::string error_file(std::string_view original) const;

 private:
  /// The second in which it failed, as well as it is known.
  std::int64_t failed_s(const ExplainedEnd& end) const;
  /// The same for people: what its error file says, whatever that is.
  std::int64_t shown_s(const ExplainedEnd& end) const;
  std::optional<std::int64_t> recorded_s(const ExplainedEnd& end) const;
  std::string block(std::size_t index) const;
  std::string explanation(const ExplainedEnd& end) const;
  std::string victim_note(const ExplainedEnd& end) const;

  ReportOptions options_;
  std::vector<ExplainedEnd> failures_;
  std::size_t first_ = 0;
};

}  // namespace muster
