// The journal of a run: what of its state was recorded, and what must be recorded next.
//
// The record has what the nodes cannot report again: restarts used, which nodes have finished, the
// outcome, and which nodes to expect. docs/rendezvous_rules.md, "What a restarted host does".
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/time.h"
#include "rendezvous/rounds/node_name.h"
#include "rendezvous/rounds/run_record.h"

namespace muster {

struct RunCore;

class RunJournal {
 public:
  /// The run begins with this record, which an earlier host has made.
  void begin_with(const RunRecord& record, const std::vector<MemberRecord>& members);
  /// The changes of the run since the last call; empty if there are none.
  std::optional<RunChange> take_changes(RunCore& run, Instant now);
  /// The next take_changes() returns the record, even if nothing has changed in it.
  void record_again();
  /// The next take_changes() looks for changes, also if the run's revision is the same.
  void look_again() { must_look_ = true; }
  const std::map<NodeName, MemberRecord>& members() const { return members_; }

 private:
  std::optional<MemberRecord> make_record_of(const RunCore& run, const NodeName& name) const;

  std::optional<RunRecord> record_;  // As take_changes() returned it last.
  std::optional<Instant> last_call_;
  std::map<NodeName, MemberRecord> members_;
  bool must_look_ = true;
  std::optional<std::uint64_t> looked_at_;  // The run's revision.
};

}  // namespace muster
