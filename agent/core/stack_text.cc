#include "agent/core/stack_text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <tuple>

#include "base/check.h"

namespace muster {
namespace {

// py-spy 0.4 indents frames by four spaces. The lines of threads begin in the first column.
constexpr std::string_view kFrameIndent = "    ";
constexpr std::string_view kThread = "Thread ";
constexpr std::string_view kMainThread = "\"MainThread\"";
constexpr std::size_t kFramesMax = 1000;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// "name (file.py:12)". Native frames have an address or no line number.
bool is_python_frame(std::string_view frame) {
  if (frame.empty() || frame.back() != ')' || frame.rfind(" (") == std::string_view::npos)
    return false;
  frame.remove_suffix(1);
  const std::size_t colon = frame.rfind(':');
  if (colon == std::string_view::npos || colon + 1 == frame.size()) return false;
  return std::all_of(frame.begin() + static_cast<std::ptrdiff_t>(colon) + 1, frame.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// Frames of Python's own library, of installed packages, and of the interpreter's frozen modules.
bool is_library_frame(std::string_view frame) {
  return contains(frame, "/site-packages/") || contains(frame, "/dist-packages/") ||
         contains(frame, "/lib/python3") || contains(frame, "(<frozen ");
}

struct Thread {
  bool is_main = false;
  std::vector<std::string_view> frames;  // Innermost first.
};

std::vector<Thread> threads_of(std::string_view dump) {
  std::vector<Thread> threads;
  while (!dump.empty()) {
    const std::size_t end = std::min(dump.find('\n'), dump.size());
    std::string_view line = dump.substr(0, end);
    dump.remove_prefix(std::min(end + 1, dump.size()));
    if (line.starts_with(kThread)) {
      threads.push_back({.is_main = contains(line, kMainThread), .frames = {}});
    } else if (!threads.empty() && line.starts_with(kFrameIndent)) {
      line.remove_prefix(kFrameIndent.size());
      auto& frames = threads.back().frames;
      if (is_python_frame(line) && frames.size() < kFramesMax) frames.push_back(line);
    }
  }
  return threads;
}

std::string key_of(const HangSuspect& suspect) {
  return suspect.line ? suspect.line->innermost + "\n" + suspect.line->own : std::string();
}

}  // namespace

std::optional<CurrentLine> current_line(std::string_view py_spy_dump) {
  const std::vector<Thread> threads = threads_of(py_spy_dump);
  auto chosen = std::find_if(threads.begin(), threads.end(),
                             [](const Thread& t) { return t.is_main && !t.frames.empty(); });
  if (chosen == threads.end())
    chosen = std::find_if(threads.begin(), threads.end(),
                          [](const Thread& t) { return !t.frames.empty(); });
  if (chosen == threads.end()) return std::nullopt;
  const auto& frames = chosen->frames;
  CurrentLine line{.innermost = std::string(frames.front())};
  const auto own = std::find_if_not(frames.begin(), frames.end(), is_library_frame);
  line.own = own == frames.end() ? line.innermost : std::string(*own);
  line.waits_for_others = std::any_of(frames.begin(), own, [](std::string_view frame) {
    return contains(frame, "/torch/distributed/");
  });
  return line;
}

std::string without_commands(std::string_view py_spy_dump) {
  constexpr std::string_view kProcess = "Process ";
  std::string text;
  for (std::size_t begin = 0; begin < py_spy_dump.size();) {
    const std::size_t end = std::min(py_spy_dump.find('\n', begin), py_spy_dump.size());
    const std::string_view line = py_spy_dump.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t colon = line.find(": ");
    // Only lines about processes begin so: those of threads begin with "Thread", frames are
    // indented.
    const bool shows_command = line.starts_with(kProcess) && colon != std::string_view::npos;
    text.append(shows_command ? line.substr(0, colon) : line).append("\n");
  }
  return text;
}

std::string to_text(const CurrentLine& line) {
  if (line.own == line.innermost) return line.own;
  return line.own + ", inside " + line.innermost;
}

std::string standing_text(const std::optional<CurrentLine>& line, std::string_view thread_table) {
  if (line)
    return "It stands at " + to_text(*line) +
           (line->waits_for_others ? ", and waits there for other ranks.\n" : ".\n");
  constexpr std::string_view kState = ": state ";
  constexpr std::string_view kWaits = ", waits in ";
  const std::string_view row = thread_table.substr(0, thread_table.find('\n'));
  // The thread's name comes first, and may have such words, too.
  const auto state = row.rfind(kState);
  const auto waits = row.rfind(kWaits);
  if (state == std::string_view::npos || waits == std::string_view::npos || waits < state)
    return "Where it stands is not known: the parts below say why.\n";
  const char letter = row.at(state + kState.size());
  std::string text = letter == 'R'                    ? "It runs"
                     : letter == 'D'                  ? "It waits and takes no signal"
                     : letter == 'T' || letter == 't' ? "It is stopped"
                                                      : "It sleeps";
  std::string_view function = row.substr(waits + kWaits.size());
  function = function.substr(0, function.find(','));
  if (function != "-") text.append(" in the kernel's ").append(function);
  return text + "; its line in Python is not known.\n";
}

std::string without_gdb_chatter(std::string_view gdb_output) {
  std::string kept;
  while (!gdb_output.empty()) {
    const std::size_t end = std::min(gdb_output.find('\n'), gdb_output.size());
    const std::string_view line = gdb_output.substr(0, end);
    gdb_output.remove_prefix(std::min(end + 1, gdb_output.size()));
    const bool is_chatter =
        line.starts_with("[New LWP ") || line.starts_with("[Thread debugging using ") ||
        line.starts_with("Using host libthread_db ") || line.starts_with("[Inferior 1 (process ") ||
        line.starts_with("Download failed: ") || contains(line, "debuginfod") ||
        contains(line, "auto-loading has been declined") ||
        line.starts_with("To enable execution of this file add") ||
        line.starts_with("\tadd-auto-load-safe-path ") ||
        line.starts_with("line to your configuration file ") ||
        line.starts_with("To completely disable this security protection add") ||
        line.starts_with("\tset auto-load safe-path /") ||
        line.starts_with("For more information about this security protection see the") ||
        line.starts_with("\"Auto-loading safe path\" section") ||
        line.starts_with("\tinfo \"(gdb)Auto-loading safe path\"") ||
        (line.empty() && (kept.empty() || kept.ends_with("\n\n")));
    if (!is_chatter) kept.append(line).append("\n");
  }
  return kept;
}

StackRefusal stack_refusal(std::string_view tool_output) {
  constexpr std::array<std::string_view, 4> kNoPermission{"Permission Denied", "Permission denied",
                                                          "Operation not permitted", "EPERM"};
  constexpr std::array<std::string_view, 2> kNotPython{"Failed to find a python interpreter",
                                                       "Failed to find python version"};
  const auto says = [tool_output](std::string_view words) { return contains(tool_output, words); };
  if (std::any_of(kNoPermission.begin(), kNoPermission.end(), says))
    return StackRefusal::NoPermission;
  if (std::any_of(kNotPython.begin(), kNotPython.end(), says)) return StackRefusal::NotPython;
  return StackRefusal::None;
}

std::string_view permission_advice() {
  return "Looking into another process was not permitted (ptrace). What allows it:\n"
         "  on a host:      sysctl kernel.yama.ptrace_scope=0, or run muster as root\n"
         "  in Docker:      docker run --cap-add=SYS_PTRACE\n"
         "  in Kubernetes:  securityContext: {capabilities: {add: [SYS_PTRACE]}}\n";
}

std::size_t main_suspect(const std::vector<HangSuspect>& suspects) {
  MUSTER_CHECK(!suspects.empty());
  const auto order = [&suspects](std::size_t i) {
    const HangSuspect& suspect = suspects[i];
    const std::string key = key_of(suspect);
    const auto sharing = std::count_if(suspects.begin(), suspects.end(),
                                       [&key](const HangSuspect& s) { return key_of(s) == key; });
    const bool waits = suspect.line && suspect.line->waits_for_others;
    return std::tuple(waits, sharing, -suspect.idle.count(), suspect.rank.value);
  };
  std::size_t chosen = 0;
  for (std::size_t i = 1; i < suspects.size(); ++i)
    if (order(i) < order(chosen)) chosen = i;
  return chosen;
}

}  // namespace muster
