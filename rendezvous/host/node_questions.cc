#include "rendezvous/host/node_questions.h"

#include <utility>

namespace muster {

void NodeQuestions::ask(const NodeAsked& question) {
  asked_.emplace(question.number, question.to);
  gate_.send(SendNative{question.to, question});
}

void NodeQuestions::answer(ConnectionId from, const NodeName* node, NodeAnswered answered) {
  const auto asked = asked_.find(answered.number);
  if (asked == asked_.end() || asked->second.value != from.value) return;
  asked_.erase(asked);
  if (node != nullptr) answered.node = to_string(*node);
  gate_.send(QuestionAnswered{std::move(answered)});
}

void NodeQuestions::drop_client(ConnectionId client) {
  for (auto question = asked_.begin(); question != asked_.end();) {
    if (question->second.value != client.value) {
      ++question;
      continue;
    }
    gate_.send(QuestionAnswered{
        {.number = question->first, .error = "the node's connection was lost before it answered"}});
    question = asked_.erase(question);
  }
}

}  // namespace muster
