#include "tests/scenarios/rendezvous_play.h"

#include "tests/scenarios/play_words.h"

namespace muster::testing {
namespace {

using namespace std::chrono_literals;
using Action = TorchModel::Action;

/// Removes the run's settings from `given`, and returns `run` with them.
RunSettings run_settings(RunSettings run, std::map<std::string, std::string>& given) {
  const auto take = [&](const char* key) {
    auto found = given.extract(key);
    return found ? std::optional(found.mapped()) : std::nullopt;
  };
  if (const auto nnodes = take("nnodes")) {
    const auto colon = nnodes->find(':');
    run.min_nodes = number(nnodes->substr(0, colon));
    run.max_nodes = colon == std::string::npos ? run.min_nodes : number(nnodes->substr(colon + 1));
  }
  if (const auto restarts = take("restarts")) run.max_restarts = number(*restarts);
  if (const auto last_call = take("last-call")) run.last_call_timeout = seconds(*last_call);
  if (const auto timeout = take("join-timeout")) run.join_timeout = seconds(*timeout);
  if (const auto policy = take("policy")) {
    bool known = false;
    for (const ScalePolicy one : {ScalePolicy::Now, ScalePolicy::AtRestart, ScalePolicy::Never})
      if (to_string(one) == *policy) {
        run.scale_policy = one;
        known = true;
      }
    if (!known) throw BadLine(*policy + "?");
  }
  if (const auto policy = take("restart-policy")) {
    run.restart_policy = read_restart_policy(*policy);
    if (!run.restart_policy) throw BadLine(*policy + "?");
  }
  if (const auto policy = take("on-notice")) {
    for (const OnNotice one : {OnNotice::Auto, OnNotice::Stop, OnNotice::Shrink})
      if (to_string(one) == *policy) run.on_notice = one;
    if (!run.on_notice) throw BadLine(*policy + "?");
  }
  return run;
}

const char* name_of(Action action) {
  switch (action) {
    case Action::KeepAlive:
      return "keeps alive";
    case Action::AddToParticipants:
      return "joins";
    case Action::AddToWaitList:
      return "goes onto the wait list";
    case Action::AddToRedundancyList:
      return "goes onto the redundancy list";
    case Action::RemoveFromParticipants:
      return "leaves the round";
    case Action::RemoveFromWaitList:
      return "leaves the wait list";
    case Action::RemoveFromRedundancyList:
      return "leaves the redundancy list";
    case Action::MarkComplete:
      return "completes the round";
    case Action::MarkClosed:
      return "closes the run";
    case Action::Sync:
      return "waits";
    case Action::Closed:
      return "gives up: the run is closed";
    case Action::Graceful:
      return "ends well: the run is closed";
    case Action::TimedOut:
      return "gives up: out of time";
    case Action::Finish:
      return "is done";
  }
  return "?";
}

const char* name_of(ProposalVerdict verdict) {
  switch (verdict) {
    case ProposalVerdict::Accepted:
      return "as it wrote it";
    case ProposalVerdict::Merged:
      return "merged";
    case ProposalVerdict::Lost:
      return "lost";
    case ProposalVerdict::Refused:
      return "refused";
  }
  return "?";
}

const char* name_of(RestartCause cause) {
  switch (cause) {
    case RestartCause::WorkersFailed:
      return "workers failed";
    case RestartCause::NodeLost:
      return "node lost";
    case RestartCause::NodeLeft:
      return "node left";
    case RestartCause::NodeJoined:
      return "node joined";
    case RestartCause::Requested:
      return "requested";
    case RestartCause::Notice:
      return "notice";
  }
  return "?";
}

}  // namespace

namespace {

std::string text_of_notice(const PreemptionNotice& notice) {
  std::string text = notice.this_node ? "this node goes, with " : "nodes go:";
  if (notice.this_node) text += std::to_string(notice.doomed) + " in all:";
  for (const std::string& node : notice.nodes)
    text += " " + node;
  text += ", ranks";
  for (const auto& [first, last] : notice.ranks)
    text += " " + std::to_string(first) + "-" + std::to_string(last);
  return text + ", in " + std::to_string(notice.left / std::chrono::seconds(1)) + " s (" +
         notice.reason + "), then " + (notice.stops ? "the run stops" : "the round restarts");
}

}  // namespace

WallTime RendezvousPlay::wall() const {
  return {1'790'000'000'000'000 + now_.time_since_epoch() / 1us};
}

void RendezvousPlay::say(const std::string& text) {
  said_.push_back(testing::text_of(now_) + " " + text);
}

std::vector<std::string> RendezvousPlay::command(const std::string& line) {
  const Words words = words_of(line);
  said_.clear();
  try {
    if (words.size() < 2) throw BadLine("a time, who, and what?");
    if (words[0] == "settings") {
      settings(words);
      return said_;
    }
    if (!rendezvous_) rendezvous_.emplace(setup_);
    const Instant when = Instant{} + seconds(words[0]);
    if (when < now_) throw BadLine("time goes backwards");
    pass_until(when);
    if (words[1] != "passes") act(words[1], {words.begin() + 2, words.end()});
  } catch (const BadLine& bad) {
    said_.push_back(std::string("not understood: ") + bad.what());
  }
  return said_;
}

void RendezvousPlay::settings(const Words& words) {
  if (rendezvous_) throw BadLine("settings come first");
  auto given = pairs({words.begin() + 1, words.end()});
  run_ = run_settings(run_, given);
  if (const auto lease = given.extract("lease")) setup_.lease = seconds(lease.mapped());
  // With unknown-to-host, as on musterd, the first muster node brings the settings.
  if (!given.extract("unknown-to-host")) setup_.run = run_;
  nothing_left(given);
}

void RendezvousPlay::pass_until(Instant end) {
  for (;;) {
    const auto deadline = rendezvous_->next_deadline();
    const Instant beat = kept_alive_ + 1s;
    const Instant next = deadline ? std::min(*deadline, beat) : beat;
    if (next > end) break;
    now_ = std::max(now_, next);
    if (beat <= now_) keep_alive();
    if (deadline && *deadline <= now_) step(RendezvousTimePassed{});
  }
  now_ = end;
}

void RendezvousPlay::keep_alive() {
  kept_alive_ = now_;
  for (auto& [name, node] : nodes_) {
    if (!node.connected || node.silent) continue;
    if (!node.torch) {
      step(KeptAlive{node.connection});
      continue;
    }
    rendezvous_->note_request(node.connection, now_);
    node.torch->state = rendezvous_->render(now_, wall());
    const auto due = node.torch->decide(TorchModel::Operation::KeepAlive, now_, now_ + 5s, wall());
    if (due != Action::KeepAlive) continue;
    const RendezvousState seen = node.torch->state;
    node.torch->apply(due, wall());
    tell(rendezvous_->propose({node.connection, seen, node.torch->state}, now_, wall()).actions);
  }
}

RendezvousPlay::Node& RendezvousPlay::known(const std::string& name) {
  const auto found = nodes_.find(name);
  if (found == nodes_.end() || !found->second.connected) throw BadLine(name + " is not there");
  return found->second;
}

RendezvousPlay::Node& RendezvousPlay::at(ConnectionId connection) {
  for (auto& [name, node] : nodes_)
    if (node.connection == connection) return node;
  throw BadLine("a message to nobody");
}

void RendezvousPlay::act(const std::string& name, const Words& words) {
  if (words.empty()) throw BadLine("what does " + name + " do?");
  const std::string& verb = words[0];
  if (verb == "torchrun") return torch(name, words);
  if (verb == "joins") {
    if (rendezvous_->is_reusable()) {  // A server of many runs does the same.
      rendezvous_.emplace(setup_);
      say("the run begins again");
    }
    return join(nodes_[name], words);
  }
  Node& node = known(name);
  const ConnectionId from = node.connection;
  if (verb == "hangs") return step(WorkersFailed{from, node.round, rest(words, 1), true});
  if (verb == "gets-to") {
    if (words.size() != 2) throw BadLine("to which step?");
    return step(NodeProgressed{from, node.round, number(words[1])});
  }
  if (verb == "fails") return step(WorkersFailed{from, node.round, rest(words, 1)});
  if (verb == "finishes") return step(NodeFinished{from, node.round, true, ""});
  if (verb == "gives-up") return step(NodeFinished{from, node.round, false, rest(words, 1)});
  if (verb == "wants-a-restart") return step(RestartRequested{from, rest(words, 1)});
  if (verb == "will-go") {
    if (words.size() < 3) throw BadLine("in how many seconds, and why?");
    return step(NodeNotified{from, seconds(words[1]), rest(words, 2), 0});
  }
  if (verb == "saves") return step(NodeSaved{from, node.round});
  if (verb == "is-drained") {
    OperatorAsked asked{OperatorAsked::What::Drain, name};
    if (words.size() > 1) asked.notice = seconds(words[1]);
    asked.reason = rest(words, 2);
    return step(asked);
  }
  if (verb == "is-allowed") return step(OperatorAsked{OperatorAsked::What::Allow, name});
  if (verb == "store-is-ready")
    return step(StoreReady{from, rendezvous_->round(), node.name.addr, 29400});
  if (verb == "falls-silent") {
    node.silent = true;
    return;
  }
  if (verb == "speaks") {
    node.silent = false;
    return step(KeptAlive{from});
  }
  if (verb != "leaves" && verb != "vanishes") throw BadLine(verb + "?");
  node.connected = false;
  if (verb == "leaves") return step(NodeLeft{from});
  step(ConnectionLost{from});
}

void RendezvousPlay::join(Node& node, const Words& words) {
  auto given = pairs({words.begin() + 1, words.end()});
  const std::string& name = std::find_if(nodes_.begin(), nodes_.end(), [&](auto& entry) {
                              return &entry.second == &node;
                            })->first;
  if (!node.connected) {
    node = {.name = {name, 1, 0}, .connection = {++connections_}, .connected = true};
  }
  NodeJoined event{.from = node.connection,
                   .name = node.name,
                   .role = "default",
                   .run = run_settings(run_, given),
                   .muster_version = "1.0",
                   .last_round = node.told_round};
  if (const auto rank = given.extract("rank")) event.preferred_rank = number(rank.mapped());
  if (const auto workers = given.extract("workers"))
    event.local_world_size = number(workers.mapped());
  event.spare = !given.extract("spare").empty();
  event.hosts_rendezvous = !given.extract("host").empty();
  event.takes_notices = given.extract("older").empty();
  nothing_left(given);
  step(event);
}

void RendezvousPlay::torch(const std::string& name, const Words& words) {
  if (words.size() < 2) throw BadLine("what does torchrun do?");
  Node& node = nodes_[name];
  if (!node.connected) {
    auto given = pairs({words.begin() + 2, words.end()});
    const RunSettings run = run_settings(run_, given);
    nothing_left(given);
    node = {.name = {name, 1, 0}, .connection = {++connections_}, .connected = true};
    node.torch =
        std::make_unique<TorchModel>(node.name, TorchSettings{.min_nodes = run.min_nodes,
                                                              .max_nodes = run.max_nodes,
                                                              .join_timeout = run.join_timeout,
                                                              .last_call = run.last_call_timeout});
  }
  if (!node.torch) throw BadLine(name + " is not torchrun's");
  const std::string& verb = words[1];
  if (verb == "looks") return torch_writes(node, TorchModel::Operation::Join);
  if (verb == "leaves-the-round") return torch_writes(node, TorchModel::Operation::Exit);
  if (verb == "closes") return torch_writes(node, TorchModel::Operation::Close);
  using Waits = Rendezvous::Waits;
  const std::map<std::string, Waits> waits{{"waits-for-a-key", Waits::ForAnything},
                                           {"waits-at-its-end", Waits::AtExit},
                                           {"has-waited", Waits::No}};
  const auto found = waits.find(verb);
  if (found == waits.end()) throw BadLine(verb + "?");
  node.silent = found->second != Waits::No;
  tell(rendezvous_->waits(node.connection, found->second, now_, wall()));
}

void RendezvousPlay::torch_writes(Node& node, TorchModel::Operation operation) {
  node.torch->state = rendezvous_->render(now_, wall());
  node.torch->sanitize(wall());
  const RendezvousState seen = rendezvous_->render(now_, wall());
  const Action action = node.torch->decide(operation, now_, now_ + run_.join_timeout, wall());
  const std::string who = node.name.addr + ": ";
  if (action == Action::Finish && operation == TorchModel::Operation::Join) {
    const auto* rank = seen.participants.find(node.name);
    return say(who + "round " + std::to_string(seen.round) + ", rank " + std::to_string(*rank) +
               " of " + std::to_string(seen.participants.size()) + ", " +
               std::to_string(seen.wait_list.size()) + " on the wait list");
  }
  if (action >= Action::Sync) return say(who + name_of(action));
  node.torch->apply(action, wall());
  const auto result =
      rendezvous_->propose({node.connection, seen, node.torch->state}, now_, wall());
  say(who + name_of(action) + ": " + name_of(result.verdict) +
      (result.refusal.empty() ? "" : ": " + result.refusal));
  tell(result.actions);
}

void RendezvousPlay::step(const RendezvousEvent& event) {
  tell(rendezvous_->step(event, now_));
}

void RendezvousPlay::tell(const RendezvousActions& actions) {
  for (const RendezvousAction& action : actions)
    say(text_of(action));
  tell_reason();
}

void RendezvousPlay::tell_reason() {
  if (rendezvous_->reason() == reason_) return;
  reason_ = rendezvous_->reason();
  say("(" + reason_ + ")");
}

std::string RendezvousPlay::text_of(const RendezvousAction& action) {
  if (const auto* skew = std::get_if<ClockSkewSeen>(&action))
    return "the clock of " + skew->who.addr + " is off";
  if (const auto* gone = std::get_if<NodeGone>(&action))
    return "gone: " + gone->who.addr +
           (gone->rank ? " (rank " + std::to_string(*gone->rank) + ")" : "") + ": " + gone->what;
  if (const auto* free = std::get_if<ReleaseFromExitBarrier>(&action)) {
    at(free->client).connected = false;
    return at(free->client).name.addr + " need not wait";
  }
  if (const auto* given = std::get_if<NoticeGiven>(&action))
    return "notice: " + given->who.addr + " goes in " +
           std::to_string(given->left / std::chrono::seconds(1)) + " s: " + given->reason;
  if (const auto* saved = std::get_if<NodeAnsweredNotice>(&action))
    return saved->who.addr + " has saved";
  if (const auto* over = std::get_if<NoticeOver>(&action))
    return "the notice of " + over->who.addr + " is over: " + over->why;
  const auto text = [&](const auto& message) -> std::string {
    using Message = std::decay_t<decltype(message)>;
    if constexpr (requires { message.to; }) {
      Node& node = at(message.to);
      const std::string to = "to " + node.name.addr + ": ";
      if constexpr (std::is_same_v<Message, PrepareStore>)
        return to + "prepare the store of round " + std::to_string(message.round);
      if constexpr (std::is_same_v<Message, RoundComplete>) {
        node.told_round = node.round = message.round;
        std::string line = to + "round " + std::to_string(message.round) + ", node " +
                           std::to_string(message.group_rank.value) + " of " +
                           std::to_string(message.group_world_size) + ", restart " +
                           std::to_string(message.restart_count);
        if (message.workers)
          line += ", ranks from " + std::to_string(message.workers->base_global_rank.value) +
                  " of " + std::to_string(message.workers->world_size);
        return line + (message.store ? ", store at " + message.store->addr : ", store unknown");
      }
      if constexpr (std::is_same_v<Message, RestartRound>) {
        node.told_round = std::max(node.told_round, message.round);
        return to + "restart round " + std::to_string(message.round) + ": " +
               name_of(message.cause) + ", " + message.who.addr + ": " + message.what;
      }
      if constexpr (std::is_same_v<Message, RunEnded>)
        return to +
               (message.succeeded   ? "the run has ended well: "
                : message.preempted ? "the run was stopped for a notice: "
                                    : "the run has failed: ") +
               (message.who ? message.who->addr + ": " : "") + message.why;
      if constexpr (std::is_same_v<Message, PreemptionNotice>) return to + text_of_notice(message);
      if constexpr (std::is_same_v<Message, RunClosed>) return to + "the run is closed";
      if constexpr (std::is_same_v<Message, JoinRefused>) {
        node.silent = true;  // A refused node leaves.
        return to + "refused: " + message.text;
      }
      if constexpr (std::is_same_v<Message, NotAMember>) return to + "join again";
    }
    return {};
  };
  return std::visit(text, action);
}

}  // namespace muster::testing
