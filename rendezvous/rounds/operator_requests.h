// What an operator asks for: a restart, the end, and nodes that are kept out of the rounds.
#pragma once

#include <string>

#include "rendezvous/rounds/run_core.h"

namespace muster {

class OperatorRequests {
 public:
  explicit OperatorRequests(RunCore& run) : run_(run) {}

  /// Does nothing if there is an objection. Returns the consequences of a request about a node, as
  /// sentences for the operator.
  std::string on(const OperatorAsked& event);
  bool restart_without_excluded();
  bool move_out_if_kept_out(Member& member);

 private:
  std::string keep_out(const std::string& node, KeptOutHow how);
  std::string allow(const std::string& node);
  std::string describe_kept_out(const std::string& node, KeptOutHow how) const;

  RunCore& run_;
};

}  // namespace muster
