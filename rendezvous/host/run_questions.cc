// RunService: reports of nodes about their workers, and questions of people to nodes. They do not
// change a run.

#include <algorithm>

#include "rendezvous/host/run_service.h"

namespace muster {

void RunService::receive(ConnectionId from, Client& client, NodeReport report, Instant now) {
  if (!client.reports.admit(now)) return;
  Run& run = *client.run;
  if (const NodeName* name = run.rendezvous->name_of(from)) {
    client.node = to_string(*name);
    run.reports.add(client.node, std::move(report), now);
  } else if (!client.node.empty() && report.failure) {
    // A node that has ended is not a member any more, but may still report why.
    run.reports.add_failure(client.node, *std::move(report.failure));
  }
  if (!run.logged_end) return;
  // The last lines of a worker that has failed come after the end of the run.
  const auto before = run.failure_report;
  note_failure_report(run);
  if (run.failure_report == before) return;
  run.rendezvous->record_again();
  finish_change(run, now);
}

/// For an ended run: keeps what its node says about the first failure.
void RunService::note_failure_report(Run& run) {
  const auto& failure = run.history.first_failure();
  if (!failure || options_.kept_ended_runs == 0) return;
  if (auto report = run.reports.failure_of(failure->node, failure->round))
    run.failure_report = std::move(report);
}

void RunService::receive(ConnectionId from, const Client& client, NodeAnswered answered) {
  const auto asked = questions_.find(answered.number);
  if (asked == questions_.end() || asked->second.value != from.value) return;  // Too late.
  questions_.erase(asked);
  if (const NodeName* name = client.run->rendezvous->name_of(from))
    answered.node = to_string(*name);
  gate_.send(QuestionAnswered{std::move(answered)});
}

void RunService::end_questions(ConnectionId client) {
  for (auto question = questions_.begin(); question != questions_.end();) {
    if (question->second.value != client.value) {
      ++question;
      continue;
    }
    gate_.send(QuestionAnswered{
        {.number = question->first, .error = "the node's connection was lost before it answered"}});
    question = questions_.erase(question);
  }
}

/// The connection of the muster node `name`, if it answers questions.
std::optional<ConnectionId> RunService::native_client(const Run& run, const NodeName& name) const {
  for (const std::uint32_t id : run.clients) {
    const auto known = clients_.find(id);
    if (known == clients_.end() || !known->second.front().answers) continue;
    const NodeName* its = run.rendezvous->name_of({id});
    if (its != nullptr && *its == name) return ConnectionId{id};
  }
  return std::nullopt;
}

std::optional<std::string> RunService::ask(std::string_view id, int rank, NodeAsked question,
                                           Time time) {
  const Run* run = find(std::string(kStateKeyPrefix).append(id));
  if (run == nullptr) return std::nullopt;
  if (questions_.size() >= kMaxQuestions)
    return "too many questions wait for their nodes: ask again later";
  for (std::size_t offset = 0; offset < run->rendezvous->members(); offset += kMaxViewedNodes) {
    const RunView view = run->rendezvous->view(offset, kMaxViewedNodes, time.now);
    for (const NodeView& node : view.nodes) {
      if (!node.first_rank || !node.local_world) continue;
      if (rank < *node.first_rank || rank - *node.first_rank >= *node.local_world) continue;
      const auto to = native_client(*run, node.name);
      if (!to)
        return "node " + to_string(node.name) + " cannot be asked: " +
               (node.absent || node.state == NodeState::Finished ? "it is away"
                                                                 : "its muster is an older one");
      question.to = *to;
      question.local_rank = rank - *node.first_rank;
      questions_.emplace(question.number, *to);
      gate_.send(SendNative{*to, question});
      return std::string();
    }
  }
  if (run->rendezvous->outcome())
    return "the run has ended, and its nodes are gone: the output is in their log folders "
           "(--log-dir), if they had one; `musterctl why` has the last lines of the first failure";
  return "no muster node of the round has rank " + std::to_string(rank) +
         ": `musterctl nodes` shows who has which";
}

}  // namespace muster
