// Simulates N muster nodes in one thread, at the native door of one server.
//
// Each node is a real connection that sends what a muster agent sends. The only difference is that
// its workers stop in no time. The class checks the server's messages: the ranks are a permutation,
// a node keeps its rank, and a round always has all nodes. A wrong message is an exception.
#pragma once

#include <netinet/in.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/messages/native_codec.h"
#include "rendezvous/store/c10d_codec.h"
#include "rendezvous/tls/tls_pump.h"

namespace muster::bench {

enum class Script {
  Muster,
  /// For a server that does nothing. A join is a connect, a greeting, and one message each way that
  /// is as long as a join. A restart is one message each way. This measures the kernel and the load
  /// program itself.
  Bare,
};

struct MusterNodesOptions {
  std::uint16_t port = 0;
  int nodes = 64;
  double limit_seconds = 120;
  /// The limit of connects that are begun and not yet answered. The kernel queues at most
  /// net.core.somaxconn connects for a listening socket, and tries others again after 1, 3, 7 … s.
  std::size_t connecting = 1'000'000;
  Script script = Script::Muster;
  /// The number of the run, which other MusterNodes must not use.
  int run = 0;
  /// Whether the nodes declare that they can resume, as current agents do. The server then answers
  /// keep-alives.
  bool resumes = false;
  /// The TLS context of the connections. Null: plain TCP.
  SharedTls tls = {};
  /// Only in resume(): a node gives up a connection without a greeting after this time, and waits
  /// twice as long for the next one, as an agent does. Zero: it waits.
  std::chrono::milliseconds patience{};
};

/// The traffic of all nodes. The numbers of keep-alives and NativeWaiting messages depend on the
/// time that a phase takes: they are in the sums, and also counted separately.
struct Traffic {
  std::int64_t messages_to = 0;
  std::int64_t bytes_to = 0;
  std::int64_t messages_from = 0;
  std::int64_t bytes_from = 0;
  std::int64_t keep_alives = 0;
  std::int64_t keep_alive_bytes = 0;
  std::int64_t waitings = 0;
  std::int64_t waiting_bytes = 0;
};

class MusterNodes {
 public:
  explicit MusterNodes(const MusterNodesOptions& options);
  MusterNodes(const MusterNodes&) = delete;
  MusterNodes& operator=(const MusterNodes&) = delete;
  ~MusterNodes();

  /// All nodes connect and join. Returns the seconds until the last node knows its rank.
  double join();
  /// One node reports that its workers failed. Returns the seconds until the last node has its rank
  /// in the next round.
  double restart();
  /// Kills the process `server`, which another process must start again. The nodes connect again as
  /// agents do. Returns the seconds until the last node has resumed.
  double resume(int server);
  /// All nodes run and send only keep-alives. Returns the seconds that this took.
  double idle(double seconds);
  /// Sends keep-alives that are due, and handles messages. Waits at most `limit` for a message.
  void serve(std::chrono::milliseconds limit);
  /// The times from a keep-alive to its answer, of nodes that resume.
  const std::vector<double>& answer_seconds() const { return answer_seconds_; }
  /// For each restart(), the time from the report of the failure to the first RestartRound message.
  const std::vector<double>& acknowledged_seconds() const { return acknowledged_seconds_; }

  const Traffic& traffic() const { return traffic_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Node {
    enum class Phase { Away, Greeting, Hello, Joining, Running };
    int fd = -1;
    Phase phase = Phase::Greeting;
    std::int64_t known_round = -1;  // The newest round of which the server has told this node.
    std::int64_t known_life = 0;    // The host's life that `known_round` belongs to.
    int rank = -1;
    std::string in;
    std::string out;                              // Bytes that the socket did not accept yet.
    RoundComplete round;                          // The last one that the server sent.
    std::optional<Clock::time_point> kept_alive;  // The first keep-alive without an answer.
    Clock::time_point next_try;
    Clock::duration pause{};
    Clock::time_point connected_at;
    Clock::duration patience{};
  };

  void connect(std::size_t i);
  void handle_lost_connection(Node& node, const char* call);
  void connect_again();
  void give_up_silent();
  void send(Node& node, std::string_view bytes, int messages);
  void flush(Node& node);
  void poll(std::chrono::milliseconds limit);
  void receive(Node& node);

  bool handle_next_message(Node& node);
  void handle_json(Node& node, std::string_view json);
  void handle_greeting(Node& node);
  void send_bare_message(Node& node);
  void on(Node& node, const NativeWelcome& message);
  void on(Node& node, const NativeChallenge& message);
  void on(Node&, const NodeAsked&) {}
  void on(Node&, const Notice&) {}
  void on(Node&, const PreemptionNotice&) {}
  void on(Node& node, const PrepareStore& message);
  void on(Node& node, const RestartRound& message);
  void on(Node& node, const RoundComplete& message);
  void on(Node& node, const NativeWaiting& message);
  void on(Node& node, const RunClosed& message);
  void on(Node& node, const NotAMember& message);
  void on(Node& node, const NativeAlive& message);
  void on(Node& node, const NativeReached& message);
  void on(Node& node, const Resumed& message);
  void on(Node& node, const Rejoin& message);
  void on(Node& node, const NativeRefused& message);
  void on(Node& node, const JoinRefused& message);
  void on(Node& node, const RunEnded& message);

  void send_request(Node& node, const NativeRequest& request);
  void send_join(Node& node);
  void send_resume(Node& node);
  NodeJoined join_of(const Node& node) const;
  std::size_t index_of(const Node& node) const;
  NodeName name_of(const Node& node) const;

  void await_round(std::int64_t round);
  void enter_round(Node& node, std::int64_t round);
  void finish_round();
  void keep_alive();

  const MusterNodesOptions options_;
  std::vector<Node> nodes_;
  const int set_;
  std::vector<char> buffer_;
  const Clock::time_point deadline_;
  Clock::time_point next_keep_alive_;
  Traffic traffic_;
  std::vector<double> answer_seconds_;
  std::vector<double> acknowledged_seconds_;
  std::optional<Clock::time_point> failed_at_;
  bool resuming_ = false;
  std::uint64_t random_ = 1;
  std::size_t greeted_nodes_ = 0;
  std::int64_t awaited_ = 0;
  std::size_t missing_ = 0;
  std::vector<bool> given_ranks_;
};

}  // namespace muster::bench
