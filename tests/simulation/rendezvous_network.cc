// The simulated network: connections, the messages on them, and their faults.

#include <catch2/catch.hpp>

#include "tests/simulation/rendezvous_nodes.h"

namespace muster::testing {

using namespace std::chrono_literals;

namespace {

// How long a muster node waits for an acknowledgement (NativeClientOptions::lost_after), and by
// when it has noticed that there is none.
constexpr Duration kLostAfter = 5s;
constexpr Duration kMaxLostAfter = 6'500ms;

}  // namespace

void World::make_server() {
  RendezvousSetup setup{.life = 1 + life_};
  if (options_.host_knows_settings) setup.run = options_.run;
  server_ = std::make_unique<Rendezvous>(setup);
}

void World::connect(Node& node) {
  node.connection = {next_connection_++};
  links_[node.connection.value] = {
      .node = &node, .life = life_, .last_to_server = now_, .last_to_node = now_};
  connections_[node.connection.value] = &node;
}

Duration World::delay() {
  const auto most = options_.max_delay_us;
  const auto usual = std::chrono::microseconds(50 + prng_.below(most));
  return faults && prng_.chance(2) ? usual * 50 : usual;
}

void World::deliver_to_server(Node& from, std::function<void()> what) {
  ++counts.to_server;
  const ConnectionId connection = from.connection;
  Link& link = links_.at(connection.value);
  link.last_to_server = std::max({now_ + delay(), link.last_to_server, link.stalled_until,
                                  from.stalled_until, from.to_server_stalled_until});
  at(link.last_to_server - now_, [this, connection, what = std::move(what)] {
    if (connections_.contains(connection.value)) what();
  });
}

void World::deliver_to_node(ConnectionId to, std::function<void(Node&)> what) {
  if (!connections_.contains(to.value)) return;
  ++counts.to_nodes;
  Link& link = links_.at(to.value);
  Node& node = *link.node;
  link.last_to_node = std::max({now_ + delay(), link.last_to_node, link.stalled_until,
                                node.stalled_until, node.to_node_stalled_until});
  at(link.last_to_node - now_, [this, &node, to, what = std::move(what)] {
    if (node.alive() && node.connection == to && links_.at(to.value).open_at_node) what(node);
  });
}

void World::disconnect(ConnectionId connection) {
  if (connections_.erase(connection.value) == 0) return;
  turns_.give_up(connection, now_);
  perform(server_->step(ConnectionLost{connection}, now_));
}

/// The node notices that the connection is gone.
void World::lose(ConnectionId connection) {
  Link& link = links_.at(connection.value);
  if (!std::exchange(link.open_at_node, false)) return;
  if (link.node->alive() && link.node->connection == connection) link.node->on_lost();
}

void World::break_connection(Node& node) {
  const ConnectionId broken = node.connection;
  Link& link = links_.at(broken.value);
  if (!link.open_at_node) return;
  node.disturbed = true;
  if (prng_.chance(50)) link.stalled_until = now_ + std::chrono::milliseconds(prng_.below(4'000));
  at(std::chrono::milliseconds(prng_.below(200)), [this, broken] { lose(broken); });
  at(std::chrono::milliseconds(prng_.below(prng_.chance(50) ? 200 : 8'000)),
     [this, broken] { disconnect(broken); });
}

void World::part(Node& node, Direction direction, Duration duration) {
  node.disturbed = true;
  const Instant end = now_ + duration;
  if (direction != Direction::ToNode) node.to_server_stalled_until = end;
  if (direction != Direction::ToServer) node.to_node_stalled_until = end;
  const Duration patience =
      kLostAfter + std::chrono::milliseconds(
                       prng_.below(static_cast<std::uint64_t>((kMaxLostAfter - kLostAfter) / 1ms)));
  if (duration < patience) return;
  // The node closes a connection that it gives up. The server learns of that only if the network
  // lets it through.
  at(patience, [this, &node, parted = node.connection, direction] {
    if (node.connection == parted) give_up(node, parted, direction == Direction::ToNode);
  });
}

void World::give_up(Node& node, ConnectionId connection, bool server_is_told) {
  lose(connection);
  // Data that was not acknowledged before is never sent again.
  if (!server_is_told) links_.at(connection.value).stalled_until = Instant::max() - 1h;
  if (server_is_told)
    at(delay(), [this, connection] { disconnect(connection); });
  else
    at(std::max(node.to_server_stalled_until - now_, Duration::zero()) + 2s,
       [this, connection] { disconnect(connection); });
}

void World::restart_server(Duration down) {
  earlier_[life_] = std::exchange(rounds_, {});
  ++life_;
  server_down_until_ = now_ + down;
  last_round_ = 0;
  was_closed_ = false;
  make_server();
  shown_.reset();
  for (const auto& [connection, node] : std::exchange(connections_, {})) {
    node->disturbed = true;
    at(std::chrono::milliseconds(prng_.below(100)),
       [this, id = ConnectionId{connection}] { lose(id); });
  }
  wake_server();
}

}  // namespace muster::testing
