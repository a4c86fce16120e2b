#include "tests/simulation/native_cluster.h"

namespace muster::testing {
namespace {

Participant::Options node_options(int index, RunSettings run, const std::string& run_id) {
  Participant::Options options;
  options.settings.run_id = run_id;
  options.settings.run = run;
  options.settings.lease = kLease;
  options.node.name = {"node" + std::to_string(index), 100 + index, 0};
  options.node.instance = "instance " + std::to_string(index);
  options.node.role = "default";
  options.node.run = run;
  options.node.muster_version = "1.0";
  options.host_text = "host:29400";
  options.random = static_cast<std::uint64_t>(index);
  return options;
}

}  // namespace

SimNode::SimNode(Cluster& of, int number, RunSettings run, std::string id)
    : cluster(of),
      index(number),
      run_id(std::move(id)),
      participant(node_options(number, run, run_id)) {}

void SimNode::feed(const Participant::Event& event) {
  if (!alive) return;
  for (const Participant::Action& action : participant.step(event, cluster.now))
    std::visit([this](const auto& a) { apply(a); }, action);
  const auto next = participant.next_deadline();
  if (!next || (wakes && *wakes <= *next && *wakes > cluster.now)) return;
  wakes = std::max(*next, cluster.now);
  cluster.at(*wakes, [this] {
    if (wakes && *wakes > cluster.now) return;
    wakes.reset();
    feed(Participant::TimeHasPassed{});
  });
}

void SimNode::apply(const Participant::Connect&) {
  cluster.connect(*this);
}
void SimNode::apply(const Participant::Disconnect&) {
  if (connection) cluster.close_at_node(*connection);
  connection.reset();
}
void SimNode::apply(const Participant::Send& action) {
  if (connection) cluster.to_host(*connection, action.request);
}
void SimNode::apply(const Participant::HostStore& action) {
  cluster.at(cluster.now + cluster.delay(), [this, round = action.round] {
    feed(Participant::StoreHosted{round, 29500});
  });
}
void SimNode::apply(const Participant::ExchangeThroughStore& action) {
  REQUIRE(cluster.has_torchrun_nodes);
  const Duration takes = 10 * cluster.delay();
  cluster.at(cluster.now + takes,
             [this, round = action.round.round] { feed(Participant::ExchangeDone{round}); });
}
void SimNode::apply(const Participant::BeginRound& action) {
  REQUIRE(workers.generation == 0);
  cluster.began(*this, action.round);
}
void SimNode::apply(const Participant::RestartWorkers& action) {
  ++restarts;
  last_restart = action.why;
  const Duration takes = std::chrono::milliseconds(cluster.prng.below(200));
  cluster.at(cluster.now + takes, [this, mine = ++stop_number] {
    if (!alive || mine != stop_number) return;
    workers = {};
    feed(Participant::JoinAsked{});
  });
}
void SimNode::apply(const Participant::EndJob& action) {
  const std::string own = "this node will go (";
  if (action.preempted && action.why.starts_with(own))
    cluster.check_deadline(action.why.substr(own.size(), action.why.find(')') - own.size()));
  is_hopeless = action.hopeless;
  end = (action.succeeded ? "ended well " : "ended badly ") + action.why;
  workers = {};
  apply(Participant::Disconnect{});
}
void SimNode::apply(const Participant::FailRendezvous& action) {
  end = "gave up: " + action.why;
  workers = {};
  apply(Participant::Disconnect{});
}
void SimNode::apply(const Participant::SetReachAnswer& action) {
  reach_answer = action;
}
void SimNode::apply(const Participant::AskReach& action) {
  const auto question = action.question;
  const auto answer = [this, question](std::optional<Instant> whole_at, Duration after) {
    Participant::ReachAnswered answered{question.generation, whole_at.has_value()};
    if (whole_at) answered.age = cluster.now - *whole_at;
    cluster.at(cluster.now + after, [this, answered] { feed(answered); });
  };
  for (const auto& other : cluster.nodes) {
    if ("node" + std::to_string(other->index) != action.store.addr) continue;
    const bool cut =
        std::max(peers_cut_until, other->peers_cut_until) > cluster.now || !other->alive;
    if (cut) break;
    other->feed(Participant::PeerReached{question.generation, question.group_rank});
    const bool same = other->reach_answer.generation == question.generation;
    return answer(same ? other->reach_answer.whole_at : std::nullopt, cluster.delay());
  }
  answer(std::nullopt, kReachWithin);
}
void SimNode::apply(const Participant::TellWorkers& action) {
  REQUIRE(workers.generation != 0);
  told = action;
  if (!answers_notices) return;
  const Duration takes = std::chrono::milliseconds(cluster.prng.below(3'000));
  cluster.at(cluster.now + takes, [this, mine = workers.generation] {
    if (!alive || workers.generation != mine || participant.phase() != Participant::Phase::Running)
      return;
    saved_generation = mine;
    feed(Participant::WorkersHaveSaved{});
  });
}
void SimNode::notify(Duration left) {
  if (alive) feed(Participant::NoticeGiven{left, cluster.give_notice(left)});
}
void SimNode::fail(const std::string& what) {
  if (!alive || participant.phase() != Participant::Phase::Running) return;
  cluster.failed(*this);
  workers = {};
  ++stop_number;
  feed(Participant::WorkersHaveFailed{what, hangs});
  cluster.at(cluster.now + 10ms, [this, mine = stop_number] {
    if (alive && mine == stop_number) feed(Participant::JoinAsked{});
  });
}
void SimNode::finish() {
  if (!alive || participant.phase() != Participant::Phase::Running) return;
  workers = {};
  feed(Participant::PartFinished{true, {}});
}

}  // namespace muster::testing
