#include "agent/io/hang_output.h"

#include <algorithm>
#include <set>

#include <spdlog/spdlog.h>

namespace muster {
namespace {

constexpr std::size_t kLinesMax = 16;  // Of one each for a worker; the files are all there.

std::string name_of(const StackCollector::Evidence& evidence) {
  return "local rank " + std::to_string(evidence.rank.value) + " (pid " +
         std::to_string(evidence.pid) + ")";
}

}  // namespace

std::string idle_text(const IdleWorker& worker) {
  return fmt::format("{} for {:.3g} s",
                     worker.has_promised ? "no report of progress" : "no output and no CPU time",
                     std::chrono::duration<double>(worker.idle).count());
}

void log_evidence(const std::vector<StackCollector::Evidence>& evidence) {
  std::set<std::string> problems;
  for (std::size_t i = 0; i < std::min(evidence.size(), kLinesMax); ++i) {
    const StackCollector::Evidence& one = evidence[i];
    const std::string where =
        one.line ? " stands at " + to_text(*one.line) + "; stacks: " : ": stacks: ";
    if (!one.file.empty()) spdlog::warn("{}{}{}", name_of(one), where, one.file);
  }
  if (evidence.size() > kLinesMax)
    spdlog::warn("and {} workers more, whose stacks are beside these", evidence.size() - kLinesMax);
  for (const StackCollector::Evidence& one : evidence)
    if (!one.problem.empty() && problems.insert(one.problem).second)
      spdlog::warn("{}", one.problem);
}

LocalRank choose_hung_worker(const std::vector<IdleWorker>& idle,
                             const std::vector<StackCollector::Evidence>& evidence) {
  const auto seen = [&evidence](LocalRank rank) {
    return std::find_if(evidence.begin(), evidence.end(),
                        [rank](const auto& one) { return one.rank == rank; });
  };
  std::vector<HangSuspect> suspects;
  for (const IdleWorker& worker : idle) {
    const auto one = seen(worker.rank);
    suspects.push_back({.rank = worker.rank, .idle = worker.idle, .line = {}});
    if (one != evidence.end()) suspects.back().line = one->line;
  }
  const std::size_t main = main_suspect(suspects);
  const HangSuspect& chosen = suspects[main];
  const auto one = seen(chosen.rank);
  const std::string name =
      one == evidence.end() ? "local rank " + std::to_string(chosen.rank.value) : name_of(*one);
  const std::string where = chosen.line ? "; it stands at " + to_text(*chosen.line) : "";
  const std::string others =
      suspects.size() > 1 ? " (" + std::to_string(suspects.size() - 1) + " more idle)" : "";
  spdlog::error("{} hangs: {}{}{}: ending it", name, idle_text(idle[main]), where, others);
  return chosen.rank;
}

std::string hang_text(LocalRank rank, const std::vector<IdleWorker>& idle,
                      const std::vector<StackCollector::Evidence>& evidence) {
  std::string text = "it hung";
  for (const IdleWorker& worker : idle)
    if (worker.rank == rank) text += ": " + idle_text(worker);
  for (const StackCollector::Evidence& one : evidence) {
    if (one.rank != rank) continue;
    if (one.line) text += "\nit stood at " + to_text(*one.line);
    if (!one.file.empty()) text += "\nits stacks: " + one.file;
  }
  return text;
}

}  // namespace muster
