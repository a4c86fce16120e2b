// A run that begins with the record of an earlier host.
//
// docs/rendezvous_rules.md, "What a restarted host does".
#pragma once

#include <vector>

#include "rendezvous/rounds/run_core.h"
#include "rendezvous/rounds/run_record.h"

namespace muster {

class RestoredRun {
 public:
  explicit RestoredRun(RunCore& run) : run_(run) {}

  void restore(const RunRecord& record, const std::vector<MemberRecord>& members, Instant now,
               WallTime wall);
  void first_is_back();
  void handle_return(const Member& member);
  bool is_outdated_by(const NodeResumed& event) const;
  void discard_restored_round();

 private:
  void restore_member(const MemberRecord& record, WallTime wall);
  void restore_round();
  void expect_workers(const std::vector<MemberRecord>& members);
  void expect_members(Duration within);

  RunCore& run_;
};

}  // namespace muster
