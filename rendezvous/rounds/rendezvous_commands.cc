// Rendezvous: two jobs that use one run id. Their nodes become one world if the settings are the
// same. Nodes of one role that run different commands are the sign of it.

#include <string>

#include "rendezvous/rounds/rendezvous.h"

namespace muster {

/// Called for each join and resume that is accepted.
void Rendezvous::note_command(const NodeJoined& event, const NodeName& name) {
  if (event.command.empty()) return;
  const auto found = first_commands_.find(event.role);
  if (found == first_commands_.end()) {
    if (first_commands_.size() < kMaxComparedRoles)
      first_commands_[event.role] = {.digest = event.command, .node = name};
  } else if (members_.named(found->second.node) == nullptr) {
    // Nodes with a new command may replace the old ones, one by one.
    found->second = {.digest = event.command, .node = name};
  }
}

/// Called for each new node: a node that joins again was compared before. A difference is no reason
/// to refuse the node: it may be in an argument that each node has of its own.
void Rendezvous::compare_command(const NodeJoined& event) {
  // All nodes of an earlier job are away, after a power cut for example.
  if (!event.command.empty() && restarts_used_ > 0 && event.generation == 0 &&
      members_.counts().connected == 1)
    actions_.push_back(
        Notice{event.from, "nodes that are not here now have begun this run, and " +
                               std::to_string(restarts_used_) + " of its " +
                               std::to_string(run().max_restarts) +
                               " restarts (--max-restarts) are used already; a new job needs an "
                               "--rdzv-id of its own, or the end of that run (musterctl stop)"});
  const auto found = first_commands_.find(event.role);
  if (event.command.empty() || found == first_commands_.end()) return;
  FirstCommand& first = found->second;
  const Member* other = members_.named(first.node);
  if (first.digest == event.command || first.node == event.name || other == nullptr) return;
  const std::string text =
      "node " + to_string(event.name) + " runs another command than node " + to_string(first.node) +
      ": if they belong to two jobs, these have become one; give each job an --rdzv-id of its own";
  actions_.push_back(Notice{event.from, text});
  if (first.knows) return;
  first.knows = true;
  if (other->connection) actions_.push_back(Notice{*other->connection, text});
  actions_.push_back(CommandsDiffer{event.name, first.node});
}

}  // namespace muster
