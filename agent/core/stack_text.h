// What stack dumps say: which line a worker stands on, and which of several is the one to blame.
//
// Pure: the texts come from programs such as py-spy, which agent/io/stack_collector.h runs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/core/ids.h"
#include "rendezvous/core/time.h"

namespace muster {

/// Where the main thread of a Python process stands.
struct StandingLine {
  std::string innermost;          // "wait (/usr/lib/python3.11/threading.py:327)"
  std::string own;                // The innermost frame outside of Python's library and packages.
  bool waits_for_others = false;  // It is inside torch.distributed: the cause is elsewhere.
  bool operator==(const StandingLine&) const = default;
};

/// From the text of `py-spy dump --full-filenames`: of the thread named MainThread, else of the
/// first one. Nothing if there is no Python frame in it.
std::optional<StandingLine> standing_line(std::string_view py_spy_dump);

/// The same text without the command lines of processes, which py-spy shows ("Process 7: python3
/// train.py --key=..."): arguments may hold secrets.
std::string without_commands(std::string_view py_spy_dump);

/// "own, inside innermost" for people; just one of them where they are the same.
std::string to_text(const StandingLine& line);

/// Why a tool did not print stacks, from what it printed instead.
enum class StackRefusal {
  None,          // It says nothing that we know.
  NoPermission,  // ptrace is not allowed to us.
  NotPython,     // The process has no Python interpreter in it.
};
StackRefusal stack_refusal(std::string_view tool_output);

/// What to do where ptrace is not allowed: lines for people.
std::string_view permission_advice();

/// One worker that does nothing, and where.
struct HangSuspect {
  LocalRank rank;
  Duration idle{};
  std::optional<StandingLine> line;
};

/// The one to end, as an index; `suspects` is not empty. Those that wait inside torch.distributed
/// wait for another; of the rest, the one whose line the fewest share; then the longest idle; then
/// the lowest rank.
std::size_t main_suspect(const std::vector<HangSuspect>& suspects);

}  // namespace muster
