// A simulated cluster around one Rendezvous: a clock, a network, muster nodes and torchrun nodes.
//
// A connection is reliable and in order, as TCP's are, but two of them are not in order with each
// other. What goes wrong: they are slow, stall, break with or without notice to either side while
// the node lives on and comes back on a new one; the network is parted, in one direction or both;
// nodes die; the server starts again and knows nothing. Chance comes from the seed.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/core/rendezvous.h"
#include "rendezvous/core/rendezvous_turns.h"
#include "tests/simulation/event_queue.h"
#include "tests/support/prng.h"
#include "tests/support/torch_model.h"

namespace muster::testing {

using State = std::shared_ptr<const RendezvousState>;

struct WorldOptions {
  RunSettings run;
  bool host_knows_settings = true;
  bool turns = true;    // The fair queue; off to see what it is good for.
  bool merging = true;  // Off: a plain store, as torchrun's own.
  bool through_codec = false;
  bool worker_failures = false;
  std::uint64_t max_delay_us = 2'000;
  std::uint64_t stop_us = 200'000;  // To stop the workers, at most.
  std::uint64_t think_us = 0;       // Of a torchrun node, between a reply and its next try.
  TorchSettings torch;
};

class World;

/// What every node has: a connection, and whether it lives.
class Node {
 public:
  Node(World& world, NodeName name) : world_(world), name_(std::move(name)) {}
  virtual ~Node() = default;
  virtual void start() = 0;
  virtual void receive(const RendezvousAction& message) = 0;
  virtual void reply(State state) = 0;
  /// Its connection is gone, and it knows.
  virtual void on_lost() {}
  /// The process is gone; `noticed`: its host closes the connection.
  void die(bool noticed);

  const NodeName& name() const { return name_; }
  bool alive() const { return alive_; }
  virtual bool settled() const = 0;  // In a running round, a spare, or at its end.
  virtual std::optional<std::int64_t> round() const = 0;
  virtual std::string describe() const = 0;

  ConnectionId connection{};
  Duration skew{};          // Of its wall clock.
  Instant stalled_until{};  // Both directions.
  Instant to_server_stalled_until{}, to_node_stalled_until{};
  bool disturbed = false;  // It was cut off, or its clock was set.

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
  /// With the name of another: containers that share the host's network.
  Node& add_muster(const NodeName& name);
  Node& add_torch(std::string addr);
  void connect(Node& node);

  void at(Duration delay, std::function<void()> what);
  /// Runs until nothing is left to do before `end`, or `done` holds.
  bool run_until(Instant end, const std::function<bool()>& done = {});

  // The network.
  void send(Node& from, RendezvousEvent event);
  void get(Node& from);
  void compare_set(Node& from, State seen, State proposed);
  /// The server learns that it is closed.
  void disconnect(ConnectionId connection);
  bool connected(const Node& node) const { return connections_.contains(node.connection.value); }
  /// The connection breaks: its two ends learn of it on their own, the server perhaps long after
  /// the node is back on another one, and what was under way may arrive even later than that.
  void break_connection(Node& node);
  /// Nothing gets through for so long, one way or both. TCP repeats what it can; a node that has
  /// no answer for kLostAfter gives its connection up.
  enum class Direction { Both, ToServer, ToNode };
  void part(Node& node, Direction direction, Duration duration);
  /// It is killed, and comes back after `down` with nothing. Only among muster nodes.
  void restart_server(Duration down);
  bool server_is_up() const { return now_ >= server_down_until_; }

  Instant now() const { return now_; }
  WallTime wall(const Node& node) const;
  Rendezvous& server() { return *server_; }
  Prng& prng() { return prng_; }
  const WorldOptions& options() const { return options_; }
  std::vector<std::unique_ptr<Node>>& nodes() { return nodes_; }
  /// Counts the lives of the server.
  int life() const { return life_; }
  int life_of(ConnectionId connection) const { return links_.at(connection.value).life; }

  /// A muster node has learned its rank.
  void learned(const Node& node, std::int64_t round, int rank, int world_size);

  /// As learned(), of a torchrun node: it counts the world when it looks, and may see fewer if
  /// others have begun to leave by then.
  void learned_late(const Node& node, std::int64_t round, int rank, int world_size);

  struct Counts {
    std::size_t to_server = 0, to_nodes = 0, compare_sets = 0, gets = 0, late_looks = 0;
  };
  Counts counts;
  bool faults = true;  // Off: from now on nothing goes wrong.

 private:
  struct Round {
    std::map<NodeName, std::int64_t> ranks;
    std::map<const Node*, std::int64_t> by_node;  // Two may have one name.
  };
  struct Link {
    Node* node = nullptr;
    int life = 0;  // Of the server.
    bool open_at_node = true;
    Instant stalled_until{};
    Instant last_to_server{}, last_to_node{};  // Nothing overtakes.
  };
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
  std::map<std::uint32_t, Node*> connections_;  // As the server sees it.
  std::map<std::uint32_t, Link> links_;         // All that ever were.
  std::uint32_t next_connection_ = 1;
  std::map<std::int64_t, Round> rounds_;
  std::map<int, std::map<std::int64_t, Round>> earlier_;  // Of the server's earlier lives.
  int life_ = 0;
  Instant server_down_until_{};
  State shown_;
  std::uint64_t shown_revision_ = 0;
  std::int64_t last_round_ = 0;
  bool was_closed_ = false;
};

}  // namespace muster::testing
