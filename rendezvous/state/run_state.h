// The interface between a run service and the storage of its state: load everything at the start,
// record changes, report when they are durable. docs/decisions/0016-state-on-disk.md.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/rounds/run_record.h"

namespace muster {

/// The changes of one or more turns of the loop. Later changes replace earlier ones.
struct StateChanges {
  struct Run {
    /// Everything stored for this run is removed first: the run was forgotten or has begun again.
    bool removed = false;
    std::optional<RunRecord> record;
    /// By name. Empty: the member is removed.
    std::map<NodeName, std::optional<MemberRecord>> members;
  };
  std::uint64_t number = 0;  // The number of the newest turn in it.
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
  /// Adds later changes. Keeps at most `most_ended` ended runs.
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
  /// Random, and as old as the state: two that have it are one. Empty: it has none.
  std::string id = {};
};

struct StateReport {
  std::uint64_t durable = 0;  // All changes up to this number are durable.
  /// Why later changes are not durable, such as a full disk. They are tried again. Empty: no
  /// problem.
  std::string problem;
};

class RunState {
 public:
  RunState() = default;
  RunState(const RunState&) = delete;
  RunState& operator=(const RunState&) = delete;
  virtual ~RunState() = default;

  /// Returns the durable state. May block. To be called once, before record().
  virtual StoredState load() = 0;
  /// `on_report` is called for each report, on any thread, until this object is destroyed or
  /// listen() is called with an empty function.
  virtual void listen(std::function<void(const StateReport&)> on_report) = 0;
  /// Does not wait for the storage. Changes become durable in the order of their numbers, several
  /// in one write if that is faster.
  virtual void record(StateChanges changes) = 0;
  /// Whether another process may take over this state. Then nothing is acknowledged before it is
  /// durable, however long that takes, because the other process would not know it.
  virtual bool is_shared() const { return false; }
  /// For a shared state: whether this process still has the right to serve it. Asked before
  /// anything is served, on any thread.
  virtual bool is_held() const { return true; }
};

}  // namespace muster
