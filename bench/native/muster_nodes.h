// N muster nodes in one thread, through the native door of one server.
//
// Each is a real connection that says and answers what a muster agent does; only that its workers
// take no time to stop. What the server tells is checked: ranks are a permutation, a node keeps its
// rank, nobody is told of anything but the whole round. What is wrong is an exception.
#pragma once

#include <netinet/in.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/tls/tls_pump.h"
#include "rendezvous/wire/c10d_codec.h"
#include "rendezvous/wire/native_codec.h"

namespace muster::bench {

enum class Script {
  Muster,
  /// To a server that does nothing: connect, greet, and one message each way, as long as a join;
  /// in place of a restart one message each way. What the kernel and the load take.
  Bare,
};

struct MusterNodesOptions {
  std::uint16_t port = 0;
  int nodes = 64;
  double limit_seconds = 120;
  /// Connects that are begun and not yet answered. More than the kernel queues for a listening
  /// socket (net.core.somaxconn) are tried again by the kernel after 1, 3, 7 … s.
  std::size_t connecting = 1'000'000;
  Script script = Script::Muster;
  /// Told apart from the runs of other MusterNodes.
  int run = 0;
  /// They say that they resume, as agents of today do: then keep-alives are answered.
  bool resumes = false;
  /// By which they come; null: by plain TCP.
  SharedTls tls = {};
};

/// What went over the wire. Keep-alives and NativeWaiting depend on how long it takes: they are in
/// the sums, and apart.
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

  /// From the first connect until the last node knows its rank; seconds, as the others.
  double join();
  /// One node's workers have failed: until the last node has its rank in the next round.
  double restart();
  /// The server is killed, and will be started again: until the last node has resumed. Each tries
  /// again as an agent does.
  double resume(int server);
  /// Everybody runs: keep-alives, and nothing else.
  double idle(double seconds);
  /// The same for a moment; `limit`: how long to wait for something to come.
  void serve(std::chrono::milliseconds limit);
  /// From a keep-alive to its answer; only of nodes that resume.
  const std::vector<double>& answer_seconds() const { return answer_seconds_; }
  /// From a failure that is told to the first node that hears of the restart, of each restart().
  const std::vector<double>& acknowledged_seconds() const { return acknowledged_seconds_; }

  const Traffic& traffic() const { return traffic_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Node {
    enum class Phase { Away, Greeting, Hello, Joining, Running };
    int fd = -1;
    Phase phase = Phase::Greeting;
    std::int64_t told = -1;  // The newest round that it knows of.
    std::int64_t told_by = 0;
    int rank = -1;
    std::string in;
    std::string out;                              // What the socket did not take.
    RoundComplete round;                          // As it was told.
    std::optional<Clock::time_point> kept_alive;  // Since then no answer has come.
    Clock::time_point next_try;
    Clock::duration pause{};
  };

  void connect(std::size_t i);
  void lost(Node& node, const char* call);
  void connect_again();
  void say_resume(Node& node);
  void send(Node& node, std::string_view bytes, int messages);
  void flush(Node& node);
  void poll(std::chrono::milliseconds limit);
  void receive(Node& node);

  bool take_message(Node& node);
  void take_json(Node& node, std::string_view json);
  void greeted(Node& node);
  void bare_message(Node& node);
  void on(Node& node, const NativeWelcome& message);
  void on(Node& node, const NativeChallenge& message);
  void on(Node&, const NodeAsked&) {}
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

  void say(Node& node, const NativeRequest& request);
  void say_join(Node& node);
  NodeJoined join_of(const Node& node) const;
  std::size_t index_of(const Node& node) const;
  NodeName name_of(const Node& node) const;

  void await_round(std::int64_t round);
  void in_round(Node& node, std::int64_t round);
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
  std::size_t greeted_ = 0;
  std::int64_t awaited_ = 0;
  std::size_t missing_ = 0;
  std::vector<bool> taken_;
};

}  // namespace muster::bench
