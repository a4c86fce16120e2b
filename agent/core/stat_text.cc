#include "agent/core/stat_text.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace muster {
namespace {

// The fields after the name. The name is in parentheses and may contain any character, so the last
// ')' ends it.
const char* fields_in(const std::string& stat) {
  const std::size_t close = stat.rfind(')');
  return close == std::string::npos ? nullptr : stat.c_str() + close + 1;
}

std::uint64_t number_after(const std::string& text, const char* name) {
  const std::size_t at = text.find(name);
  return at == std::string::npos
             ? 0
             : std::strtoull(text.c_str() + at + std::strlen(name), nullptr, 10);
}

}  // namespace

std::optional<std::uint64_t> start_in(const std::string& stat) {
  const char* fields = fields_in(stat);
  unsigned long long start = 0;
  // proc(5): starttime is field 22.
  if (fields == nullptr ||
      std::sscanf(fields,
                  " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d "
                  "%llu",
                  &start) != 1)
    return std::nullopt;
  return start;
}

StatText parse_stat(const std::string& stat) {
  const char* fields = fields_in(stat);
  StatText found;
  char state = '?';
  unsigned long long user = 0;
  unsigned long long kernel = 0;
  unsigned long long children_user = 0;
  unsigned long long children_kernel = 0;
  // proc(5): state is field 3; utime, stime, cutime, cstime are 14 to 17.
  if (fields != nullptr &&
      std::sscanf(fields, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %llu %llu", &state,
                  &user, &kernel, &children_user, &children_kernel) == 5)
    found = {.state = state,
             .own_ticks = user + kernel,
             .children_ticks = children_user + children_kernel};
  return found;
}

std::uint64_t bytes_written_in(const std::string& io) {
  const std::size_t at = io.rfind("wchar: ");
  return at == std::string::npos ? 0 : std::strtoull(io.c_str() + at + 7, nullptr, 10);
}

std::uint64_t own_memory_in(const std::string& status) {
  return 1024 * (number_after(status, "\nRssAnon:") + number_after(status, "\nRssShmem:") +
                 number_after(status, "\nVmSwap:"));
}

}  // namespace muster
