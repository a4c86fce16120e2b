#include "tests/simulation/rendezvous_world.h"

#include <set>

#include <catch2/catch.hpp>

#include "rendezvous/messages/native_codec.h"
#include "rendezvous/torchrun/state_codec.h"
#include "tests/simulation/rendezvous_nodes.h"
#include "tests/support/trace.h"

namespace muster::testing {
namespace {

using namespace std::chrono_literals;

/// For conditions that are checked a million times, where REQUIRE would take too long.
#define MUSTER_ALWAYS(condition)        \
  do {                                  \
    if (!(condition)) FAIL(#condition); \
  } while (false)

constexpr std::int64_t kWallAtStart = 1'790'000'000'000'000;

std::int64_t us(Duration duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

}  // namespace

void Node::die(bool noticed) {
  alive_ = false;
  const ConnectionId gone = connection;
  if (noticed) world_.at(1ms, [this, gone] { world_.disconnect(gone); });
}

World::World(std::uint64_t seed, WorldOptions options) : options_(options), prng_(seed) {
  make_server();
}
World::~World() = default;

Node& World::add_muster(std::string addr, bool spare, std::optional<int> preferred) {
  nodes_.push_back(std::make_unique<MusterNode>(
      *this, NodeName{std::move(addr), static_cast<std::int64_t>(100 + nodes_.size()), 0},
      MusterNode::Role{spare, preferred}));
  connect(*nodes_.back());
  return *nodes_.back();
}

Node& World::add_muster(const NodeName& name) {
  nodes_.push_back(std::make_unique<MusterNode>(*this, name, MusterNode::Role{}));
  connect(*nodes_.back());
  return *nodes_.back();
}

Node& World::add_torch(std::string addr) {
  nodes_.push_back(std::make_unique<TorchNode>(
      *this, NodeName{std::move(addr), static_cast<std::int64_t>(100 + nodes_.size()), 0}));
  connect(*nodes_.back());
  return *nodes_.back();
}

void World::at(Duration delay, std::function<void()> what) {
  events_.push(now_ + delay, std::move(what));
}

bool World::run_until(Instant end, const std::function<bool()>& done) {
  return events_.run_until(now_, end, done);
}

WallTime World::server_wall() const {
  return {kWallAtStart + us(now_.time_since_epoch())};
}
WallTime World::wall(const Node& node) const {
  return {server_wall().microseconds + us(node.skew)};
}

void World::trace(ConnectionId connection, std::string_view bytes) const {
  Trace::now().add(now_.time_since_epoch().count());
  Trace::now().add(std::int64_t{connection.value});
  Trace::now().add(bytes);
}

void World::send(Node& from, RendezvousEvent event) {
  deliver_to_server(from,
                    [this, event = std::move(event)] { perform(server_->step(event, now_)); });
}

State World::transmitted(const State& state) const {
  if (!options_.through_codec) return state;
  const auto decoded = decode_state(encode_state(*state));
  REQUIRE(decoded.has_value());
  REQUIRE(**decoded == *state);
  return std::make_shared<const RendezvousState>(**decoded);
}

State World::shown() {
  const RendezvousState& state = server_->render(now_, server_wall());
  if (!shown_ || shown_revision_ != server_->revision())
    shown_ = std::make_shared<const RendezvousState>(state);
  shown_revision_ = server_->revision();
  return shown_;
}

void World::get(Node& from) {
  ++counts.gets;
  const ConnectionId client = from.connection;
  deliver_to_server(from, [this, client] {
    server_->note_request(client, now_);
    answer(client, shown());
  });
}

void World::answer(ConnectionId to, State state) {
  deliver_to_node(to, [this, to, state](Node& node) {
    if (Trace::now().wanted()) trace(to, encode_state(*state));
    node.reply(transmitted(state));
  });
}

void World::compare_set(Node& from, State seen, State proposed) {
  ++counts.compare_sets;
  const ConnectionId client = from.connection;
  deliver_to_server(from, [this, client, seen, proposed] {
    const ProposalResult result = server_->propose({client, *seen, *proposed}, now_, server_wall());
    MUSTER_ALWAYS(result.verdict != ProposalVerdict::Refused);
    const bool lost = result.verdict == ProposalVerdict::Lost;
    if (!lost) {
      if (turns_.may_try(client)) turns_.tried(client, true, now_);
      answer(client, result.verdict == ProposalVerdict::Accepted ? proposed : shown());
    } else {
      lost_try(client);
    }
    perform(result.actions);
  });
}

void World::lost_try(ConnectionId client) {
  if (!options_.turns) return answer(client, shown());
  if (turns_.may_try(client))
    turns_.tried(client, false, now_);
  else
    turns_.hold(client, now_);
  answer_released();
  wake_server();
}

void World::answer_released() {
  for (const ConnectionId client : turns_.take_released())
    answer(client, shown());
}

void World::perform(RendezvousActions actions) {
  check();
  for (const RendezvousAction& action : actions) {
    std::visit(
        [&](const auto& message) {
          if constexpr (requires { message.to; }) {
            trace(message.to, encode(NativeMessage(message)));
            deliver_to_node(message.to, [action](Node& node) { node.receive(action); });
          } else if constexpr (requires { message.client; }) {
            trace(message.client, "released from the exit barrier");
          } else if constexpr (requires { message.who; }) {
            trace({}, to_string(message.who));
          }
        },
        action);
  }
  answer_released();
  wake_server();
}

void World::wake_server() {
  auto next = server_->next_deadline();
  if (const auto turn = turns_.next_deadline(); turn && (!next || *turn < *next)) next = turn;
  if (!next || (server_wakes_ && *server_wakes_ <= *next && *server_wakes_ > now_)) return;
  server_wakes_ = std::max(*next, now_);
  at(*server_wakes_ - now_, [this] {
    if (server_wakes_ && *server_wakes_ > now_) return;  // A later call has set another wake-up.
    server_wakes_.reset();
    turns_.time_passed(now_);
    perform(server_->step(RendezvousTimePassed{}, now_));
  });
}

void World::check() {
  const RendezvousState& state = server_->render(now_, server_wall());
  MUSTER_ALWAYS(state.round >= last_round_);
  last_round_ = state.round;
  MUSTER_ALWAYS(!was_closed_ || state.closed);
  was_closed_ = state.closed;
  MUSTER_ALWAYS(server_->restarts_used() <= options_.run.max_restarts);
  MUSTER_ALWAYS(!server_->reason().empty());
  MUSTER_ALWAYS(server_->counts_are_right());
  if (!state.complete || rounds_.contains(state.round)) return;
  // A new round: its ranks must be a permutation, and its size must be allowed.
  Round& round = rounds_[state.round];
  std::set<std::int64_t> ranks;
  for (const auto& [node, rank] : state.participants) {
    round.ranks[node] = rank;
    REQUIRE(ranks.insert(rank).second);
  }
  for (const auto& [connection, node] : connections_) {
    const NodeName* name = server_->name_of({connection});
    if (name != nullptr && round.ranks.contains(*name)) round.by_node[node] = round.ranks.at(*name);
  }
  const auto size = static_cast<int>(ranks.size());
  std::string others;
  for (const auto& node : nodes_)
    others += node->describe() + "\n";
  INFO("phase " << static_cast<int>(server_->phase()) << ", " << state.wait_list.size()
                << " waiting, " << state.redundancy_list.size() << " redundant\n"
                << others);
  REQUIRE(size >= options_.run.min_nodes);
  REQUIRE(size <= options_.run.max_nodes);
  REQUIRE(*ranks.begin() == 0);
  REQUIRE(*ranks.rbegin() == size - 1);
}

void World::learned(const Node& node, std::int64_t number, int rank, int world_size) {
  INFO(to_string(node.name()) << " learned rank " << rank << " of " << world_size << " in round "
                              << number);
  const int life = life_of(node.connection);
  const auto& rounds = life == life_ ? rounds_ : earlier_.at(life);
  REQUIRE(rounds.contains(number));
  const Round& round = rounds.at(number);
  REQUIRE(round.by_node.contains(&node));
  CHECK(round.by_node.at(&node) == rank);
  CHECK(static_cast<std::size_t>(world_size) == round.ranks.size());
}

void World::learned_late(const Node& node, std::int64_t number, int rank, int world_size) {
  INFO(to_string(node.name()) << " learned rank " << rank << " of " << world_size << " in round "
                              << number);
  REQUIRE(rounds_.contains(number));
  const Round& round = rounds_.at(number);
  REQUIRE(round.ranks.contains(node.name()));
  CHECK(round.ranks.at(node.name()) == rank);
  CHECK(static_cast<std::size_t>(world_size) <= round.ranks.size());
  if (static_cast<std::size_t>(world_size) < round.ranks.size()) ++counts.late_looks;
}

}  // namespace muster::testing
