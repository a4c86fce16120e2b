// The records of a run service, kept in memory as texts: a disk whose writes the test commits
// explicitly.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "rendezvous/state/run_record_codec.h"
#include "rendezvous/state/run_state.h"
#include "tests/support/trace.h"

namespace muster::testing {

class MemoryState : public RunState {
 public:
  StoredState load() override {
    waiting_.clear();  // The host that wrote these changes is dead.
    StoredState state;
    for (const auto& [run_id, stored] : runs_) {
      const auto record = decode_run_record(stored.record);
      REQUIRE(record.has_value());
      StoredRun run{run_id, *record, {}};
      for (const auto& [name, text] : stored.members) {
        const auto member = decode_member_record(text);
        REQUIRE(member.has_value());
        run.members.push_back(*member);
      }
      state.runs.push_back(std::move(run));
    }
    for (const std::string& text : ended_) {
      const auto run = decode_ended_run(text);
      REQUIRE(run.has_value());
      state.ended.push_back(*run);
    }
    return state;
  }
  void listen(std::function<void(const StateReport&)>) override {}
  void record(StateChanges changes) override { waiting_.push_back(std::move(changes)); }

  /// Makes all waiting changes durable. Returns the number of the newest one.
  std::uint64_t commit() {
    StateChanges all;
    for (StateChanges& changes : std::exchange(waiting_, {}))
      all.merge(std::move(changes), 1'000);
    for (const auto& [run_id, change] : all.runs)
      apply(run_id, change);
    for (const EndedRun& run : all.ended)
      ended_.push_back(encode(run));
    durable_ = std::max(durable_, all.number);
    return durable_;
  }
  /// A new host counts its turns from the start.
  void begin_host() { durable_ = 0; }
  std::size_t runs() const { return runs_.size(); }

 private:
  struct Stored {
    std::string record;
    std::map<NodeName, std::string> members;
  };
  void apply(const std::string& run_id, const StateChanges::Run& change) {
    if (change.removed) runs_.erase(run_id);
    if (!change.record) return;
    Stored& stored = runs_[run_id];
    stored.record = encode(*change.record);
    Trace::now().add(stored.record);
    for (const auto& [name, member] : change.members)
      if (member) {
        const std::string text = encode(*member);
        Trace::now().add(text);
        stored.members.insert_or_assign(name, text);
      } else {
        stored.members.erase(name);
      }
  }

  std::map<std::string, Stored> runs_;
  std::vector<std::string> ended_;
  std::vector<StateChanges> waiting_;
  std::uint64_t durable_ = 0;
};

}  // namespace muster::testing
