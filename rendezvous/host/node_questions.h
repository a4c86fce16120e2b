// The questions of people that wait for the answers of nodes.
#pragma once

#include <cstdint>
#include <map>

#include "rendezvous/host/durability_gate.h"
#include "rendezvous/rounds/limits.h"
#include "rendezvous/rounds/node_report.h"

namespace muster {

class NodeQuestions {
 public:
  /// The questions and answers leave through `gate`, which outlives this.
  explicit NodeQuestions(DurabilityGate& gate) : gate_(gate) {}

  bool is_full() const { return asked_.size() >= kMaxQuestions; }
  /// Sends the question to `question.to`. A QuestionAnswered with its number follows.
  void ask(const NodeAsked& question);
  /// Ignores an answer that comes too late, or from another connection. `node` is the node's name.
  void answer(ConnectionId from, const NodeName* node, NodeAnswered answered);
  /// `client` can no longer answer.
  void drop_client(ConnectionId client);
  /// The answer is no longer needed.
  void forget(std::uint64_t number) { asked_.erase(number); }

 private:
  DurabilityGate& gate_;
  std::map<std::uint64_t, ConnectionId> asked_;  // By number: the connection that is asked.
};

}  // namespace muster
