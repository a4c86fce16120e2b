// Parses the numbers in files of /proc/PID. Pure: the texts of the files are arguments. They
// contain the process's name, which the process itself may have chosen.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muster {

/// When a process started, in ticks since the boot, from the text of its /proc/PID/stat. Empty if
/// the text has no such number.
std::optional<std::uint64_t> start_in(const std::string& stat);

/// The state and the CPU time of a process, from the same text.
struct StatText {
  char state = '?';
  std::uint64_t own_ticks = 0;
  std::uint64_t children_ticks = 0;  // The CPU time of children that it has waited for.
};
StatText parse_stat(const std::string& stat);

/// The number of bytes that a process has written, from the text of its /proc/PID/io. 0 if the text
/// does not have it.
std::uint64_t bytes_written_in(const std::string& io);

/// The memory of a process that is no copy of a file, in bytes, from the text of its
/// /proc/PID/status. What is swapped out counts. 0 if the text does not have it.
std::uint64_t own_memory_in(const std::string& status);

}  // namespace muster
