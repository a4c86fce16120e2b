#include "agent/core/failure_notes.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>

#include "base/size_text.h"

namespace muster {
namespace {

// Workers that succeed do not end in the same moment. A shorter time explains no failure.
constexpr std::int64_t kEarlyMs = 500;
constexpr std::size_t kRanksNamed = 8;
constexpr std::int64_t kFullFraction = 100;  // Full: less than a hundredth is free.

std::string fine_size_text(std::int64_t bytes) {
  return mebibytes_text(static_cast<std::uint64_t>(bytes), 1);
}

}  // namespace

std::string early_ends_note(const std::vector<WorkerEnd>& ends, const WorkerEnd& failed) {
  const auto before_ms = [&failed](const WorkerEnd& end) { return failed.died_ms - end.died_ms; };
  std::vector<const WorkerEnd*> early;
  for (const WorkerEnd& end : ends)
    if (end.has_ended() && end.exit.ok() && !end.signalled_ms && end.order < failed.order &&
        before_ms(end) >= kEarlyMs)
      early.push_back(&end);
  if (early.empty() || !failed.has_ended()) return "";
  std::sort(early.begin(), early.end(),
            [](const WorkerEnd* a, const WorkerEnd* b) { return a->rank < b->rank; });
  std::string ranks;
  for (std::size_t i = 0; i < std::min(early.size(), kRanksNamed); ++i)
    ranks.append(i == 0 ? "" : ", ").append(std::to_string(early[i]->rank.value));
  if (early.size() > kRanksNamed)
    ranks += " and " + std::to_string(early.size() - kRanksNamed) + " more";
  const auto first =
      std::max_element(early.begin(), early.end(),
                       [&](const auto* a, const auto* b) { return before_ms(*a) < before_ms(*b); });
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f s", static_cast<double>(before_ms(**first)) / 1000);
  return (early.size() == 1 ? "rank " : "ranks ") + ranks + " had ended with 0 before, " +
         (early.size() == 1 ? "" : "the first of them ") + seconds +
         " earlier: did this one wait for it?";
}

std::string shared_memory_note(const SharedMemoryRoom& room, const WorkerExit& exit) {
  if (room.size_bytes <= 0) return "";
  const bool is_bus_error = exit.killed && exit.status == SIGBUS;
  const bool is_full = room.free_bytes < room.size_bytes / kFullFraction;
  if (!is_bus_error && !is_full) return "";
  return std::string(is_bus_error ? "a bus error often means that /dev/shm was full: "
                                  : "/dev/shm is full: ") +
         fine_size_text(room.free_bytes) + " of " + fine_size_text(room.size_bytes) +
         " are free after its end (docker run --shm-size; fewer DataLoader workers)";
}

std::string oom_child_note(const OomFacts& facts) {
  if (facts.kills <= 0) return "";
  std::string text = "in this attempt the kernel's OOM killer has killed " +
                     std::to_string(facts.kills) +
                     (facts.kills == 1 ? " process of " : " processes of ") + facts.cgroup_dir;
  if (facts.limit_bytes) text += ", which has a limit of " + fine_size_text(*facts.limit_bytes);
  if (!facts.kernel_lines.empty()) text += ": \"" + facts.kernel_lines.back() + "\"";
  return text;
}

}  // namespace muster
