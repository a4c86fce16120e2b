// A simulated cluster around one Rendezvous: a clock, a network, muster nodes and torchrun nodes.
//
// A connection is reliable and in order, as in TCP, but two connections are not in order with each
// other. Faults: connections are slow, stall, or break with or without notice to either side, while
// the node lives on and comes back on a new one; the network is partitioned in one direction or
// both; nodes die; the server starts again and knows nothing. Chance comes from the seed.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/host/rendezvous.h"
#include "rendezvous/torchrun/rendezvous_turns.h"
#include "tests/simulation/event_queue.h"
#include "tests/support/prng.h"
#include "tests/support/torch_model.h"

namespace muster::testing {

using State = std::shared_ptr<const RendezvousState>;

struct WorldOptions {
  RunSettings run;
  bool host_knows_settings = true;
  bool turns = true;    // The fair queue. False: the queue is off, to measure its effect.
  bool merging = true;  // False: a plain store, like torchrun's.
  bool through_codec = false;
  bool worker_failures = false;
  std::uint64_t max_delay_us = 2'000;
  std::uint64_t stop_us = 200'000;  // The longest time to stop the workers.
  std::uint64_t think_us = 0;       // A torchrun node's time between a reply and its next try.
  TorchSettings torch;
};

class World;

/// The base of all nodes: a connection, and whether the node lives.
class Node {
 public:
  Node(World& world, NodeName name) : world_(world), name_(std::move(name)) {}
  virtual ~Node() = default;
  virtual void start() = 0;
  virtual void receive(const RendezvousAction& message) = 0;
  virtual void reply(State state) = 0;
  /// The node has noticed that its connection is gone.
  virtual void on_lost() {}
  /// The process is gone. `noticed`: its machine closes the connection.
  void die(bool noticed);

  const NodeName& name() const { return name_; }
  bool alive() const { return alive_; }
  virtual bool settled() const = 0;  // Whether the node is in a running round, a spare, or ended.
  virtual std::optional<std::int64_t> round() const = 0;
  virtual std::string describe() const = 0;

  ConnectionId connection{};
  Duration skew{};          // The error of its wall clock.
  Instant stalled_until{};  // Nothing arrives before this instant, in both directions.
  Instant to_server_stalled_until{}, to_node_stalled_until{};
  bool disturbed = false;  // The node was cut off, or its clock was set.

 protected:
  World& world_;
  NodeName name_;
  bool alive_ = true;
};

class World {
 public:
  World(std::uint64_t seed, WorldOptions options);
  ~World();

  Node& add_muster(std::string addr, bool spare = false, std::optional<int> preferred = {});
  /// Adds a node with the name of another one, as in containers that share the host's network.
  Node& add_muster(const NodeName& name);
  Node& add_torch(std::string addr);
  void connect(Node& node);

  void at(Duration delay, std::function<void()> what);
  /// Runs until no event is left before `end`, or `done()` is true.
  bool run_until(Instant end, const std::function<bool()>& done = {});

  // The network.
  void send(Node& from, RendezvousEvent event);
  void get(Node& from);
  void compare_set(Node& from, State seen, State proposed);
  /// The server notices that the connection is closed.
  void disconnect(ConnectionId connection);
  bool connected(const Node& node) const { return connections_.contains(node.connection.value); }
  /// The connection breaks. Its two ends notice that independently, the server perhaps long after
  /// the node is back on a new connection. Messages on the way may arrive even later.
  void break_connection(Node& node);
  /// Nothing gets through for `duration`, in one direction or both. TCP sends again what was lost.
  /// A node without an acknowledgement for kLostAfter gives its connection up.
  enum class Direction { Both, ToServer, ToNode };
  void part(Node& node, Direction direction, Duration duration);
  /// The server is killed and comes back after `down` without any state. Only if all nodes are
  /// muster nodes.
  void restart_server(Duration down);
  bool server_is_up() const { return now_ >= server_down_until_; }

  Instant now() const { return now_; }
  WallTime wall(const Node& node) const;
  Rendezvous& server() { return *server_; }
  Prng& prng() { return prng_; }
  const WorldOptions& options() const { return options_; }
  std::vector<std::unique_ptr<Node>>& nodes() { return nodes_; }
  /// The number of earlier lives of the server.
  int life() const { return life_; }
  int life_of(ConnectionId connection) const { return links_.at(connection.value).life; }

  /// A muster node has learned its rank.
  void learned(const Node& node, std::int64_t round, int rank, int world_size);

  /// As learned(), for a torchrun node. It counts the world when it reads the state, and may see
  /// fewer nodes if some have begun to leave by then.
  void learned_late(const Node& node, std::int64_t round, int rank, int world_size);

  struct Counts {
    std::size_t to_server = 0, to_nodes = 0, compare_sets = 0, gets = 0, late_looks = 0;
  };
  Counts counts;
  bool faults = true;  // False: from now on there are no faults.

 private:
  struct Round {
    std::map<NodeName, std::int64_t> ranks;
    std::map<const Node*, std::int64_t> by_node;  // By node, because two nodes may have one name.
  };
  struct Link {
    Node* node = nullptr;
    int life = 0;  // The server's life in which the connection was opened.
    bool open_at_node = true;
    Instant stalled_until{};
    Instant last_to_server{}, last_to_node{};  // Messages stay in order: none arrives earlier.
  };
  void trace(ConnectionId connection, std::string_view bytes) const;
  void make_server();
  void lose(ConnectionId connection);
  void give_up(Node& node, ConnectionId connection, bool server_is_told);
  WallTime server_wall() const;
  Duration delay();
  void deliver_to_server(Node& from, std::function<void()> what);
  void deliver_to_node(ConnectionId to, std::function<void(Node&)> what);
  void perform(RendezvousActions actions);
  void answer(ConnectionId to, State state);
  void lost_try(ConnectionId client);
  void answer_released();
  void wake_server();
  State shown();
  void check();
  State transmitted(const State& state) const;

  WorldOptions options_;
  Prng prng_;
  Instant now_{};
  EventQueue events_;
  std::unique_ptr<Rendezvous> server_;
  CompareSetTurns turns_;
  std::optional<Instant> server_wakes_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::map<std::uint32_t, Node*> connections_;  // The connections as the server sees them.
  std::map<std::uint32_t, Link> links_;         // All connections, also closed ones.
  std::uint32_t next_connection_ = 1;
  std::map<std::int64_t, Round> rounds_;
  std::map<int, std::map<std::int64_t, Round>> earlier_;  // The rounds of earlier server lives.
  int life_ = 0;
  Instant server_down_until_{};
  State shown_;
  std::uint64_t shown_revision_ = 0;
  std::int64_t last_round_ = 0;
  bool was_closed_ = false;
};

}  // namespace muster::testing
