// Reads stack dumps: finds the line at which each worker is, and which of several idle workers is
// the likely cause of a hang.
//
// Pure: the texts come from programs such as py-spy, which agent/io/stack_collector.h runs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace muster {

/// The line at which the main thread of a Python process is.
struct CurrentLine {
  std::string innermost;          // "wait (/usr/lib/python3.11/threading.py:327)"
  std::string own;                // The innermost frame outside of Python's library and packages.
  bool waits_for_others = false;  // Inside torch.distributed: another process is the cause.
  bool operator==(const CurrentLine&) const = default;
};

/// Parses the text of `py-spy dump --full-filenames`. Uses the thread named MainThread, or else the
/// first thread with Python frames. Empty if the text has no Python frame.
std::optional<CurrentLine> current_line(std::string_view py_spy_dump);

/// The same text without the command lines of processes, which py-spy shows ("Process 7: python3
/// train.py --key=..."): arguments may hold secrets.
std::string without_commands(std::string_view py_spy_dump);

/// "own, inside innermost", for people. If the two are the same, only one of them.
std::string to_text(const CurrentLine& line);

/// One sentence about where a process stands: at this line, or, if none is known, what its first
/// thread does, by the table of its threads (agent/posix/process_activity.h).
std::string standing_text(const std::optional<CurrentLine>& line, std::string_view thread_table);

/// gdb's output without what it says about itself and about how it reads the process.
std::string without_gdb_chatter(std::string_view gdb_output);

/// Why a tool did not print stacks, found from what it printed instead.
enum class StackRefusal {
  None,          // The output has no known message.
  NoPermission,  // muster may not use ptrace.
  NotPython,     // The process has no Python interpreter.
};
StackRefusal stack_refusal(std::string_view tool_output);

/// Advice for people if ptrace is not allowed: several lines.
std::string_view permission_advice();

/// One idle worker, and the line at which it is.
struct HangSuspect {
  LocalRank rank;
  Duration idle{};
  std::optional<CurrentLine> line;
};

/// The index of the suspect that muster must end; `suspects` must not be empty. Workers that wait
/// inside torch.distributed come last, because they wait for another worker. Among the others, the
/// worker whose line the fewest share is chosen, then the longest idle, then the lowest rank.
std::size_t main_suspect(const std::vector<HangSuspect>& suspects);

}  // namespace muster
