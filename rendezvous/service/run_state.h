// Between a run service and what keeps its state: load everything at the start, record what has
// changed, tell when that is durable. docs/decisions/0016-state-on-disk.md.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/run_record.h"

namespace muster {

/// What one turn of the loop has changed, or several: later changes replace earlier ones.
struct StateChanges {
  struct Run {
    /// Whatever was stored of it goes first: it was forgotten, or has begun again.
    bool removed = false;
    std::optional<RunRecord> record;
    /// By name; nothing: removed.
    std::map<NodeName, std::optional<MemberRecord>> members;
  };
  std::uint64_t number = 0;  // Of the newest turn in it.
  std::map<std::string, Run> runs;
  std::vector<EndedRun> ended;  // Oldest first.

  bool empty() const { return runs.empty() && ended.empty(); }
  void add(const std::string& run_id, RunChange change) {
    Run& run = runs[run_id];
    run.record = std::move(change.record);
    for (MemberRecord& member : change.members) {
      const NodeName name = member.name;
      run.members.insert_or_assign(name, std::move(member));
    }
    for (const NodeName& name : change.removed)
      run.members.insert_or_assign(name, std::nullopt);
  }
  void remove(const std::string& run_id) { runs[run_id] = {.removed = true}; }
  /// At most `most_ended` lines of history are kept.
  void merge(StateChanges later, std::size_t most_ended) {
    number = later.number;
    for (auto& [run_id, change] : later.runs) {
      Run& run = runs[run_id];
      if (change.removed) {
        run = std::move(change);
        continue;
      }
      if (change.record) run.record = std::move(change.record);
      for (auto& [name, member] : change.members)
        run.members.insert_or_assign(name, std::move(member));
    }
    for (EndedRun& run : later.ended)
      ended.push_back(std::move(run));
    if (ended.size() > most_ended)
      ended.erase(ended.begin(), ended.end() - static_cast<std::ptrdiff_t>(most_ended));
  }
};

struct StoredState {
  std::vector<StoredRun> runs;
  std::vector<EndedRun> ended;  // Oldest first.
};

struct StateReport {
  std::uint64_t durable = 0;  // All changes up to this number.
  /// Why the others are not: the disk is full, or fails. They are tried again. Empty: nothing is
  /// wrong.
  std::string problem;
};

class RunState {
 public:
  RunState() = default;
  RunState(const RunState&) = delete;
  RunState& operator=(const RunState&) = delete;
  virtual ~RunState() = default;

  /// Everything that is durable; may block. Once, before record().
  virtual StoredState load() = 0;
  /// `told` is called for each report, on any thread, until this object is destroyed or listen() is
  /// called with nothing.
  virtual void listen(std::function<void(const StateReport&)> told) = 0;
  /// Never blocks. Changes are made durable in the order of their numbers, several at once where
  /// that is quicker.
  virtual void record(StateChanges changes) = 0;
  /// Whether another process may take over what is kept here. What is not durable is then never
  /// acknowledged, for however long it takes: the other process would not know it.
  virtual bool is_shared() const { return false; }
  /// Of a shared state: whether this process may still answer for it. Asked before anything is
  /// served, on any thread.
  virtual bool is_held() const { return true; }
};

}  // namespace muster
