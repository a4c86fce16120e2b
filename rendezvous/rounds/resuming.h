// Nodes that resume: on a new connection, and after the host was restarted without a record.
//
// A host that was restarted does not know its rounds, but the nodes do. If every node of a round
// resumes, each with its own rank (recovery.h), the host adopts the round as it was.
// docs/rendezvous_rules.md.
#pragma once

#include <optional>
#include <string>

#include "rendezvous/rounds/run_core.h"

namespace muster {

class Resuming {
 public:
  explicit Resuming(RunCore& run) : run_(run) {}

  void on(const NodeResumed& event);
  void time_passed();
  void send_rejoin(ConnectionId to, std::string why);
  void cancel_recovery(const std::string& why);
  void note_return(const NodeJoined& event);

 private:
  void note_progress(const NodeResumed& event);
  void adopt_progress(const Recovery& recovery);
  void resume_member(const Member& member, const NodeResumed& event);
  void end_resume(const NodeResumed& event, const NodeName& who, std::string why);
  void count_late_failure(const NodeResumed& event, const NodeName& who);
  bool may_recover(const NodeResumed& event) const;
  bool may_take_up(const NodeResumed& event) const;
  bool is_of_recovery(const NodeResumed& event) const;
  bool has_finished_elsewhere(const NodeResumed& event) const;
  void take_as_finished(const NodeJoined& join, const NodeResumed& event);
  void recover(const NodeJoined& join, const NodeResumed& event);
  void finish_recovery();
  void adopt_round();
  bool adopt_restart_count(const Recovery& recovery);
  std::optional<RunEnded> count_lost_failure(const Recovery& recovery);

  RunCore& run_;
};

}  // namespace muster
