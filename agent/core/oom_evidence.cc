#include "agent/core/oom_evidence.h"

#include <charconv>
#include <cstdint>

#include "base/next_field.h"
#include "base/size_text.h"

namespace muster {
namespace {

// The number at the beginning of the text.
std::optional<std::int64_t> leading_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  return number;
}

}  // namespace

std::optional<std::int64_t> oom_kill_count(std::string_view text) {
  while (!text.empty()) {
    std::string_view value = next_field(text, '\n');
    if (next_field(value, ' ') == "oom_kill") return leading_number(value);
  }
  return std::nullopt;
}

std::optional<KernelMessage> kernel_message(std::string_view record) {
  std::string_view text = record;
  std::string_view fields = next_field(text, ';');
  next_field(fields, ',');
  next_field(fields, ',');
  const auto time = leading_number(fields);
  if (!time || text.empty()) return std::nullopt;
  return KernelMessage{*time, next_field(text, '\n')};
}

std::optional<int> oom_victim(std::string_view text) {
  // mm/oom_kill.c: "%s: Killed process %d (%s) total-vm:…" in Linux 5 and 6, "Killed process …" in
  // Linux 4.
  constexpr std::string_view kWords = "Killed process ";
  const std::size_t at = text.find(kWords);
  if (at == std::string_view::npos) return std::nullopt;
  const auto pid = leading_number(text.substr(at + kWords.size()));
  if (!pid) return std::nullopt;
  return static_cast<int>(*pid);
}

std::string oom_evidence(const OomFacts& facts, int pid, int unexplained) {
  for (const std::string& line : facts.kernel_lines)
    if (oom_victim(line) == pid) return "the kernel's log says \"" + line + "\"";
  if (facts.kills == 0) return "";
  const std::string limit = facts.limit_bytes
                                ? ", which has a limit of " +
                                      mebibytes_text(static_cast<std::uint64_t>(*facts.limit_bytes))
                                : "";
  const std::string counted = "it killed " + std::to_string(facts.kills) +
                              (facts.kills == 1 ? " process of " : " processes of ") +
                              facts.cgroup_dir + limit;
  return facts.kills < unexplained ? counted + ", perhaps this one" : counted;
}

}  // namespace muster
