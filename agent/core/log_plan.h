// Where every stream of every worker goes: files, console, both, nowhere.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/agent_options.h"
#include "agent/core/logs_specs.h"
#include "rendezvous/core/ids.h"

namespace muster {

/// "<run id>_<suffix>", where a run id that cannot be part of a file name ('/', control characters,
/// too long) is made safe. `suffix` is what makes the name unique: torchrun takes 8 characters.
std::string run_dir_name(std::string_view run_id, std::string_view suffix);

/// "attempt_<restart count>". A restart never deletes an earlier attempt's files: membership
/// changes restart the workers without counting, so if that name is among `existing` (the names in
/// the run's directory), the next free one of attempt_<n>.1, attempt_<n>.2, … is taken.
std::string attempt_dir_name(int restart_count, const std::set<std::string>& existing);

/// The prefix of a tee'd line: all known but the time of day, which each line may need.
class LinePrefix {
 public:
  LinePrefix() = default;  // No prefix.
  explicit LinePrefix(std::string text) : pieces_{std::move(text)} {}

  struct Facts {
    std::string role;
    GlobalRank rank;
    LocalRank local_rank;
    std::string host;
  };
  /// Python's string.Template with torchrun's role_name, rank, local_rank, and host and time; an
  /// empty template means "[${role_name}${local_rank}]:".
  static LinePrefix from_template(std::string_view text, const Facts& facts);

  bool needs_time() const { return pieces_.size() > 1; }
  /// `time` is "HH:MM:SS.mmm"; used only if needs_time().
  void append_to(std::string& out, std::string_view time) const {
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      if (i > 0) out += time;
      out += pieces_[i];
    }
  }

 private:
  std::vector<std::string> pieces_;  // The time goes between each two.
};

/// What a worker's descriptor 1 or 2 is.
enum class StreamTarget {
  Inherit,  // The agent's own.
  Discard,  // /dev/null.
  File,     // `file`, opened to append.
  Tap,      // A pipe, of which the agent keeps the end; see `to_console`.
};

struct StreamPlan {
  StreamTarget target = StreamTarget::Inherit;
  std::string file;         // File only.
  bool to_console = false;  // File: tee'd, with the prefix. Tap: copied as it is.
  bool operator==(const StreamPlan&) const = default;
};

struct WorkerLogPlan {
  LocalRank local_rank;
  std::string dir;         // Empty: none.
  std::string error_file;  // Empty: none.
  StreamPlan out;
  StreamPlan err;
  /// Both streams go through one pipe, because both were one open file: their order is kept.
  bool one_tap = false;
  LinePrefix prefix;
  EnvironmentChanges environment = {};
};

/// A file that is shown, prefixed, though no worker of ours has been given it as a stream.
struct ShownFile {
  LocalRank local_rank;
  bool is_stderr = false;
  std::string file;
  LinePrefix prefix;
};

struct AttemptLogPlan {
  std::vector<std::string> directories;  // To make, in this order, with mode 0777 & ~umask.
  std::string filtered_stdout;           // File for the lines that pass a filter; empty: none.
  std::string filtered_stderr;
  std::vector<WorkerLogPlan> workers;
  std::vector<ShownFile> more_shown;
  /// A plug-in chose the files: they may be anything, and what an earlier attempt or job has left
  /// in them goes, as under torchrun.
  bool chosen_by_plugin = false;
};

/// What the plan depends on and options do not say.
struct LogSurroundings {
  std::string attempt_dir;      // Absolute; ignored with --log-dir /dev/null.
  GlobalRank base_global_rank;  // Of local rank 0.
  std::string host;
  bool stderr_is_terminal = false;
  bool console_is_one_file = false;  // The agent's stdout and stderr are one open file.
};

AttemptLogPlan plan_logs(const AgentOptions& options, const LogSurroundings& surroundings);

/// The same where a plug-in of --logs-specs has chosen the files; `attempt_dir` is ignored.
AttemptLogPlan plan_logs(const AgentOptions& options, const LogSurroundings& surroundings,
                         const LogsDest& dest);

}  // namespace muster
