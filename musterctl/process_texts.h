// Parses the files of /proc/PID. Pure. The input is not trusted: a process can choose its name, its
// arguments and its environment.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace muster::ctl {

/// The fields of /proc/PID/stat that musterctl uses.
struct StatFields {
  std::string name;
  int parent = 0;
  int session = 0;
  double cpu_ticks = 0;
  std::uint64_t resident_pages = 0;
};
/// Returns nothing for a zombie, and for a text of another form.
std::optional<StatFields> parse_stat_fields(std::string_view text);

/// What of a process's resident memory is its own, from the text of /proc/PID/smaps_rollup.
struct MemoryShares {
  std::uint64_t own_bytes = 0;           // In no other process.
  std::uint64_t proportional_bytes = 0;  // A page that k processes share counts as 1/k.
};
/// Returns nothing for a text of another form.
std::optional<MemoryShares> parse_memory_shares(std::string_view text);

/// The variables of /proc/PID/environ. If a name occurs twice, its first value counts.
using Environment = std::map<std::string, std::string>;
Environment parse_environment(std::string_view text);

/// Shows the program of /proc/PID/cmdline, and the script or module if the program is an
/// interpreter. Never shows other arguments, which may be secret, nor code in an argument (`python
/// -c`).
std::string command_text(std::string_view cmdline);

}  // namespace muster::ctl
