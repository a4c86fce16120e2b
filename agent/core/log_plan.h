// Plans where every stream of every worker goes: to a file, the console, both or neither.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/agent_options.h"
#include "agent/core/logs_specs.h"
#include "agent/core/string_template.h"
#include "base/ids.h"

namespace muster {

/// "<run id>_<suffix>". A run id that cannot be part of a file name ('/', control characters, too
/// long) is made safe. `suffix` makes the name unique: torchrun uses 8 characters.
std::string run_dir_name(std::string_view run_id, std::string_view suffix);

/// "attempt_<restart count>". A membership change restarts the workers without increasing the
/// count, and no restart deletes an earlier attempt's files. So if that name is among `existing`
/// (the names in the run's directory), the next free one of attempt_<n>.1, attempt_<n>.2, … is
/// used.
std::string attempt_dir_name(int restart_count, const std::set<std::string>& existing);

/// The prefix of a teed line. Everything in it is known in advance but the time of day, which may
/// differ for each line.
class LinePrefix {
 public:
  LinePrefix() = default;  // No prefix.
  explicit LinePrefix(std::string text) : pieces_{std::move(text)} {}

  /// Python's string.Template with the names in `values`, and also time. An empty template means
  /// "[${role_name}${local_rank}]:".
  static LinePrefix from_template(std::string_view text, const TemplateValues& values);

  bool needs_time() const { return pieces_.size() > 1; }
  /// `time` is "HH:MM:SS.mmm"; used only if needs_time().
  void append_to(std::string& out, std::string_view time) const {
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      if (i > 0) out += time;
      out += pieces_[i];
    }
  }

 private:
  std::vector<std::string> pieces_;  // The time is inserted between each two pieces.
};

/// What a worker's descriptor 1 or 2 refers to.
enum class StreamTarget {
  Inherit,  // The agent's own descriptor.
  Discard,  // /dev/null.
  File,     // `file`, opened for appending.
  Tap,      // A pipe, or a terminal: the agent keeps the last lines; see `to_console`.
};

struct StreamPlan {
  StreamTarget target = StreamTarget::Inherit;
  std::string file;         // Only for the target File.
  bool to_console = false;  // File: teed, with the prefix. Tap: copied unchanged.
  bool operator==(const StreamPlan&) const = default;
};

struct WorkerLogPlan {
  LocalRank local_rank;
  std::string dir;         // Empty: none.
  std::string error_file;  // Empty: none.
  StreamPlan out;
  StreamPlan err;
  /// Both streams use one pipe, because both were one open file. This keeps their order.
  bool one_tap = false;
  /// The tap of stderr is a terminal, as the console is one. If that cannot be made, it is a pipe
  /// with CaptureStderr::Always, and else the worker has the console itself.
  bool terminal_tap = false;
  LinePrefix prefix;
  EnvironmentChanges environment = {};
};

/// A file that is shown with a prefix, although it is no worker's stdout or stderr in this plan.
struct ShownFile {
  LocalRank local_rank;
  bool is_stderr = false;
  std::string file;
  LinePrefix prefix;
};

struct AttemptLogPlan {
  std::vector<std::string> directories;  // Created in this order, with mode 0777 & ~umask.
  std::string filtered_stdout;           // The file for lines that pass a filter. Empty: none.
  std::string filtered_stderr;
  std::vector<WorkerLogPlan> workers;
  std::vector<ShownFile> more_shown;
  /// A plug-in chose the files. They may be of any kind, and what an earlier attempt or job left in
  /// them is removed, as under torchrun.
  bool chosen_by_plugin = false;
};

/// What the plan depends on besides the options.
struct LogContext {
  std::string attempt_dir;      // Absolute; empty: there is none. Ignored with --log-dir /dev/null.
  GlobalRank base_global_rank;  // The global rank of local rank 0.
  std::string host;
  bool stderr_is_terminal = false;
  bool console_is_one_file = false;  // The agent's stdout and stderr are one open file.
};

AttemptLogPlan plan_logs(const AgentOptions& options, const LogContext& context);

/// The plan if a plug-in of --logs-specs has chosen the files. `attempt_dir` is ignored.
AttemptLogPlan plan_logs(const AgentOptions& options, const LogContext& context,
                         const LogsDest& dest);

}  // namespace muster
