// Why a request of an operator is refused now, or would change nothing.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/rounds/run_core.h"

namespace muster {

class OperatorObjections {
 public:
  explicit OperatorObjections(const RunCore& run) : run_(run) {}

  /// Empty if the request is not refused.
  std::string objection_to(const OperatorAsked& asked) const;
  /// Whether a request without an objection changes anything: a node may be allowed in already.
  bool has_effect(const OperatorAsked& asked) const;
  /// The members outside the rounds that match an operator's text.
  bool is_doomed(const std::string& node) const;
  std::vector<NodeName> members_outside(const std::string& node) const;

 private:
  std::string objection_to_node(const OperatorAsked& asked) const;
  std::string objection_to_allowing(const std::string& node) const;

  const RunCore& run_;
};

}  // namespace muster
