// Muster nodes that join: the name and the answer that a node gets, and what its join shows.
//
// Two jobs that use one run id become one world if their settings are the same. Nodes of one role
// that run different commands are the sign of it: both get a notice.
#pragma once

#include <optional>

#include "rendezvous/rounds/run_core.h"

namespace muster {

class Joins {
 public:
  explicit Joins(RunCore& run) : run_(run) {}

  void on(const NodeJoined& event);
  NodeName name_for(const NodeJoined& event) const;
  std::optional<JoinRefused> refusal_of(const NodeJoined& event, bool resumes = false) const;
  Member& register_member(const NodeJoined& event);

 private:
  void join_again(Member& member, const NodeJoined& event, bool reconnected);
  void update_unseen_workers(const NodeJoined& event);
  void note_command(const NodeJoined& event, const NodeName& name);
  void compare_command(const NodeJoined& event);

  RunCore& run_;
};

}  // namespace muster
