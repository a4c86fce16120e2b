// N muster nodes in one process and one thread, through the native door of one server: they join,
// one of them fails, they join again. Prints one JSON object.
//
//   rendezvous_load --port N [--nodes 64] [--restarts 2] [--idle-seconds 0] [--pid SERVER]
//                   [--connecting 1000000] [--limit-seconds 120]
//   rendezvous_load --port N --bare     the least that could be: see Script::Bare
//
// Each node is a real connection that says and answers what a muster agent does; only that its
// workers take no time to stop. What the server tells it is checked: ranks are a permutation, the
// same node keeps its rank, nobody is told less than the whole round.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>

#include "rendezvous/wire/c10d_codec.h"
#include "rendezvous/wire/native_codec.h"

#include "bench/native/process_use.h"

namespace muster {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// A third of the lease, as an agent does.
constexpr auto kKeepAliveInterval = 5000ms / 3;
/// Between connects we listen to those who are connected.
constexpr std::size_t kConnectsInARow = 64;
/// Before the search for a free port gets long: from so many on, another loopback address.
constexpr std::size_t kNodesPerAddress = 8'000;
constexpr std::uint16_t kWorkersPort = 29'400;

enum class Script {
  Muster,
  /// To a server that does nothing: connect, greet, and one message each way, as long as a join;
  /// in place of a restart one message each way. What the kernel and the load take.
  Bare,
};

struct Settings {
  std::uint16_t port = 0;
  int nodes = 64;
  int restarts = 2;
  int pid = 0;
  double idle_seconds = 0;
  double limit_seconds = 120;
  /// Connects that are begun and not yet answered. More than the kernel queues for a listening
  /// socket (net.core.somaxconn) are tried again by the kernel after 1, 3, 7 … s.
  std::size_t connecting = 1'000'000;
  Script script = Script::Muster;
};

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// What went over the wire. Keep-alives and NativeWaiting depend on how long it takes: apart.
struct Traffic {
  std::int64_t messages_to = 0;
  std::int64_t bytes_to = 0;
  std::int64_t messages_from = 0;
  std::int64_t bytes_from = 0;
  std::int64_t keep_alives = 0;
  std::int64_t keep_alive_bytes = 0;
  std::int64_t waitings = 0;
  std::int64_t waiting_bytes = 0;

  Traffic operator-(const Traffic& before) const {
    return {.messages_to = messages_to - before.messages_to,
            .bytes_to = bytes_to - before.bytes_to,
            .messages_from = messages_from - before.messages_from,
            .bytes_from = bytes_from - before.bytes_from,
            .keep_alives = keep_alives - before.keep_alives,
            .keep_alive_bytes = keep_alive_bytes - before.keep_alive_bytes,
            .waitings = waitings - before.waitings,
            .waiting_bytes = waiting_bytes - before.waiting_bytes};
  }
  nlohmann::json json() const {
    return {{"messages_to", messages_to},     {"bytes_to", bytes_to},
            {"messages_from", messages_from}, {"bytes_from", bytes_from},
            {"keep_alives", keep_alives},     {"keep_alive_bytes", keep_alive_bytes},
            {"waitings", waitings},           {"waiting_bytes", waiting_bytes}};
  }
};

struct Node {
  enum class Phase { Greeting, Hello, Joining, Running };
  int fd = -1;
  Phase phase = Phase::Greeting;
  std::int64_t told = -1;  // The newest round that it knows of.
  int rank = -1;
  std::string in;
  std::string out;  // What the socket did not take.
};

class Cluster {
 public:
  explicit Cluster(const Settings& settings)
      : settings_(settings),
        nodes_(static_cast<std::size_t>(settings.nodes)),
        set_(::epoll_create1(EPOLL_CLOEXEC)),
        buffer_(std::size_t{1} << 16),
        deadline_(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(settings.limit_seconds))) {
    if (set_ < 0) fail("epoll_create1");
  }
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;
  ~Cluster() {
    for (const Node& node : nodes_)
      if (node.fd >= 0) ::close(node.fd);
    ::close(set_);
  }

  /// From the first connect until the last node knows its rank.
  double join() {
    const auto begin = Clock::now();
    next_keep_alive_ = begin + kKeepAliveInterval;
    await_round(0);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      while (i - greeted_ >= settings_.connecting)
        poll(10ms);
      connect(i);
      if (i % kConnectsInARow != 0) continue;
      keep_alive();
      poll(0ms);
    }
    finish_round();
    return seconds_since(begin);
  }

  /// One node's workers have failed: until the last node has its rank in the next round.
  double restart() {
    const auto begin = Clock::now();
    const std::int64_t round = nodes_[0].told;
    await_round(round + 1);
    if (settings_.script == Script::Bare) {
      for (Node& node : nodes_)
        bare_message(node);
    } else {
      const std::size_t who = nodes_.size() / 2;
      say(nodes_[who], WorkersFailed{{}, round, "rank 3 exited with 1"});
    }
    finish_round();
    return seconds_since(begin);
  }

  /// Everybody runs: keep-alives, and nothing else.
  double idle() {
    const auto begin = Clock::now();
    while (seconds_since(begin) < settings_.idle_seconds) {
      keep_alive();
      poll(10ms);
    }
    return seconds_since(begin);
  }

  Traffic traffic() const { return traffic_; }

 private:
  // --- the sockets -------------------------------------------------------------------------------

  void connect(std::size_t i) {
    Node& node = nodes_[i];
    node.fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (node.fd < 0) fail("socket");
    const int on = 1;
    ::setsockopt(node.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (i >= kNodesPerAddress) {
      ::setsockopt(node.fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
      const auto offset = static_cast<std::uint32_t>(i / kNodesPerAddress);
      const sockaddr_in source = loopback(offset, 0);
      if (::bind(node.fd, reinterpret_cast<const sockaddr*>(&source), sizeof source) < 0)
        fail("bind");
    }
    const sockaddr_in server = loopback(0, settings_.port);
    if (::connect(node.fd, reinterpret_cast<const sockaddr*>(&server), sizeof server) < 0 &&
        errno != EINPROGRESS)
      fail("connect");
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLET;
    event.data.u64 = i;
    if (::epoll_ctl(set_, EPOLL_CTL_ADD, node.fd, &event) < 0) fail("epoll_ctl");
    static const std::string kGreeting =
        c10d_bytes({.query = Query::Validate, .number = c10d::kValidationMagic}) +
        c10d_bytes({.query = Query::Ping, .number = 4711});
    send(node, kGreeting, 2);
  }

  static sockaddr_in loopback(std::uint32_t offset, std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + offset);
    return address;
  }

  static std::string c10d_bytes(const Request& request) {
    std::string bytes;
    encode_request(request, bytes);
    return bytes;
  }

  void send(Node& node, std::string_view bytes, int messages) {
    traffic_.messages_to += messages;
    traffic_.bytes_to += static_cast<std::int64_t>(bytes.size());
    node.out += bytes;
    flush(node);
  }

  void flush(Node& node) {
    while (!node.out.empty()) {
      const ssize_t sent = ::send(node.fd, node.out.data(), node.out.size(), MSG_NOSIGNAL);
      if (sent < 0 && (errno == EAGAIN || errno == ENOTCONN)) return;
      if (sent < 0) fail("send");
      node.out.erase(0, static_cast<std::size_t>(sent));
    }
  }

  void poll(std::chrono::milliseconds limit) {
    std::array<epoll_event, 256> events;
    const int count = ::epoll_wait(set_, events.data(), static_cast<int>(events.size()),
                                   static_cast<int>(limit.count()));
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      Node& node = nodes_[static_cast<std::size_t>(event.data.u64)];
      if (event.events & EPOLLOUT) flush(node);
      if (event.events & (EPOLLIN | EPOLLERR | EPOLLHUP)) receive(node);
    }
  }

  void receive(Node& node) {
    for (;;) {
      const ssize_t got = ::recv(node.fd, buffer_.data(), buffer_.size(), 0);
      if (got < 0 && errno == EAGAIN) break;
      if (got < 0) fail("recv");
      if (got == 0) throw std::runtime_error("the server has closed a node's connection");
      traffic_.bytes_from += got;
      node.in.append(buffer_.data(), static_cast<std::size_t>(got));
      if (static_cast<std::size_t>(got) < buffer_.size()) break;
    }
    while (take_message(node))
      ++traffic_.messages_from;
  }

  // --- what comes --------------------------------------------------------------------------------

  bool take_message(Node& node) {
    if (node.phase == Node::Phase::Greeting) {
      if (node.in.size() < sizeof(std::uint32_t)) return false;
      node.in.erase(0, sizeof(std::uint32_t));
      greeted(node);
      return true;
    }
    if (node.in.size() < kNativeLengthBytes) return false;
    const auto length = read_native_length(node.in);  // A c10d value's is the same.
    if (!length) throw std::runtime_error(describe(length.error()));
    if (node.in.size() < kNativeLengthBytes + *length) return false;
    if (settings_.script == Script::Bare) {
      in_round(node, awaited_);
    } else {
      const std::string_view json(node.in.data() + kNativeLengthBytes, *length);
      const auto message = decode_native_message(json);
      if (!message) throw std::runtime_error(describe(message.error()));
      if (std::holds_alternative<NativeWaiting>(*message)) {
        ++traffic_.waitings;
        traffic_.waiting_bytes += static_cast<std::int64_t>(kNativeLengthBytes + json.size());
      }
      std::visit([&](const auto& m) { on(node, m); }, *message);
    }
    node.in.erase(0, kNativeLengthBytes + *length);
    return true;
  }

  void greeted(Node& node) {
    node.phase = Node::Phase::Hello;
    ++greeted_;
    if (settings_.script == Script::Bare) return bare_message(node);
    say(node, NativeHello{kNativeProtocolVersion, "bench", run_id()});
  }

  void bare_message(Node& node) {
    node.phase = Node::Phase::Joining;
    const std::string key = "node-" + std::to_string(index_of(node));
    const std::string value = encode(NativeRequest(join_of(node)));
    send(node,
         c10d_bytes({.query = Query::Set, .key = key, .value = value}) +
             c10d_bytes({.query = Query::Get, .key = key}),
         1);
  }

  void on(Node& node, const NativeWelcome&) { say_join(node); }
  void on(Node& node, const PrepareStore& message) {
    say(node, StoreReady{{}, message.round, name_of(node).addr, kWorkersPort});
  }
  void on(Node& node, const RestartRound& message) {
    node.told = std::max(node.told, message.round);
    if (node.phase == Node::Phase::Running) say_join(node);
  }
  void on(Node& node, const RoundComplete& message) {
    const int rank = message.group_rank.value;
    if (message.round != awaited_ || message.group_world_size != settings_.nodes)
      throw std::runtime_error("round " + std::to_string(message.round) + " of " +
                               std::to_string(message.group_world_size) + " nodes, wanted " +
                               std::to_string(awaited_) + " of " + std::to_string(settings_.nodes));
    if (taken_[static_cast<std::size_t>(rank)])
      throw std::runtime_error("rank " + std::to_string(rank) + " was given twice");
    if (node.rank >= 0 && node.rank != rank) throw std::runtime_error("a node's rank has changed");
    if (!message.store || !message.workers)
      throw std::runtime_error("a round without a store, or without the workers' ranks");
    taken_[static_cast<std::size_t>(rank)] = true;
    node.rank = rank;
    in_round(node, message.round);
  }
  void on(Node&, const NativeWaiting&) {}
  void on(Node&, const RunClosed&) { throw std::runtime_error("the run was closed"); }
  void on(Node&, const NotAMember&) { throw std::runtime_error("a node was taken for lost"); }
  void on(Node&, const NativeRefused& m) { throw std::runtime_error("refused: " + m.text); }
  void on(Node&, const JoinRefused& m) { throw std::runtime_error("join refused: " + m.text); }
  void on(Node&, const RunEnded& m) { throw std::runtime_error("the run has ended: " + m.why); }

  // --- what a node says --------------------------------------------------------------------------

  void say(Node& node, const NativeRequest& request) { send(node, encode(request), 1); }
  void say_join(Node& node) {
    node.phase = Node::Phase::Joining;
    say(node, join_of(node));
  }

  NodeJoined join_of(const Node& node) const {
    NodeJoined joined;
    joined.name = name_of(node);
    joined.local_world_size = 8;
    joined.role = "default";
    joined.run.min_nodes = joined.run.max_nodes = settings_.nodes;
    joined.run.max_restarts = 1'000;
    joined.muster_version = "bench";
    joined.last_round = node.told;
    return joined;
  }
  std::size_t index_of(const Node& node) const {
    return static_cast<std::size_t>(&node - nodes_.data());
  }
  NodeName name_of(const Node& node) const {
    const std::size_t i = index_of(node);
    return {.addr = "10." + std::to_string(i >> 16) + "." + std::to_string(i >> 8 & 255) + "." +
                    std::to_string(i & 255),
            .pid = 100'000 + static_cast<std::int64_t>(i)};
  }
  static std::string run_id() { return "bench-" + std::to_string(::getpid()); }

  // --- rounds ------------------------------------------------------------------------------------

  void await_round(std::int64_t round) {
    awaited_ = round;
    missing_ = nodes_.size();
    taken_.assign(nodes_.size(), false);
  }
  void in_round(Node& node, std::int64_t round) {
    node.told = round;
    node.phase = Node::Phase::Running;
    --missing_;
  }

  void finish_round() {
    while (missing_ > 0) {
      if (Clock::now() >= deadline_)
        throw std::runtime_error(std::to_string(missing_) + " of " + std::to_string(nodes_.size()) +
                                 " nodes are not in round " + std::to_string(awaited_) +
                                 " within the limit");
      keep_alive();
      poll(100ms);
    }
  }

  void keep_alive() {
    const auto now = Clock::now();
    if (now < next_keep_alive_) return;
    next_keep_alive_ = now + kKeepAliveInterval;
    if (settings_.script == Script::Bare) return;
    for (Node& node : nodes_) {
      if (node.phase < Node::Phase::Joining) continue;
      const std::int64_t before = traffic_.bytes_to;
      say(node, KeptAlive{});
      ++traffic_.keep_alives;
      traffic_.keep_alive_bytes += traffic_.bytes_to - before;
    }
  }

  const Settings settings_;
  std::vector<Node> nodes_;
  const int set_;
  std::vector<char> buffer_;
  const Clock::time_point deadline_;
  Clock::time_point next_keep_alive_;
  Traffic traffic_;
  std::size_t greeted_ = 0;
  std::int64_t awaited_ = 0;
  std::size_t missing_ = 0;
  std::vector<bool> taken_;
};

double own_cpu_s() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

/// One phase, and what it cost the server.
template <typename Phase>
nlohmann::json measured(const Settings& settings, const Cluster& cluster, Phase phase) {
  const bench::ProcessUse use = bench::use_of(settings.pid);
  const Traffic traffic = cluster.traffic();
  const double own = own_cpu_s();
  const double seconds = phase();
  nlohmann::json result = (cluster.traffic() - traffic).json();
  result["seconds"] = seconds;
  result["own_cpu_s"] = own_cpu_s() - own;
  result["server_cpu_s"] = bench::use_of(settings.pid).cpu_s - use.cpu_s;
  return result;
}

nlohmann::json run(const Settings& settings) {
  Cluster cluster(settings);
  const double rss_before_mb = bench::use_of(settings.pid).rss_mb;
  nlohmann::json result = {{"nodes", settings.nodes}, {"rss_before_mb", rss_before_mb}};
  result["join"] = measured(settings, cluster, [&] { return cluster.join(); });
  result["restarts"] = nlohmann::json::array();
  for (int i = 0; i < settings.restarts; ++i)
    result["restarts"].push_back(measured(settings, cluster, [&] { return cluster.restart(); }));
  result["idle"] = measured(settings, cluster, [&] { return cluster.idle(); });
  const bench::ProcessUse use = bench::use_of(settings.pid);
  result["rss_mb"] = use.rss_mb;
  result["peak_rss_mb"] = use.peak_rss_mb;
  return result;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  muster::Settings settings;
  bool bare = false;
  CLI::App app{"N muster nodes at one rendezvous; prints JSON."};
  app.add_option("--port", settings.port)->required();
  app.add_option("--nodes", settings.nodes)->check(CLI::Range(1, 100'000))->capture_default_str();
  app.add_option("--restarts", settings.restarts)->capture_default_str();
  app.add_option("--idle-seconds", settings.idle_seconds, "Afterwards, with keep-alives");
  app.add_option("--pid", settings.pid, "The server, for its CPU time and memory");
  app.add_option("--limit-seconds", settings.limit_seconds)->capture_default_str();
  app.add_option("--connecting", settings.connecting, "Connects at once, at most")
      ->check(CLI::PositiveNumber);
  app.add_flag("--bare", bare, "The server is bare_epoll_server");
  CLI11_PARSE(app, argc, argv);
  if (bare) settings.script = muster::Script::Bare;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  try {
    std::printf("%s\n", muster::run(settings).dump().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rendezvous_load: %s\n", error.what());
    return 1;
  }
}
