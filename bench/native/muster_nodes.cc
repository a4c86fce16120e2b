#include "bench/native/muster_nodes.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <variant>

namespace muster::bench {
namespace {

using namespace std::chrono_literals;

/// A third of the lease, as in an agent.
constexpr auto kKeepAliveInterval = 5000ms / 3;
/// After this many connects, the messages of the connected nodes are handled.
constexpr std::size_t kConnectsInARow = 64;
/// Further nodes use another loopback address, because the kernel's search for a free port would
/// take long.
constexpr std::size_t kNodesPerAddress = 8'000;
constexpr std::uint16_t kWorkersPort = 29'400;

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

sockaddr_in loopback(std::uint32_t offset, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + offset);
  return address;
}

std::string c10d_bytes(const Request& request) {
  std::string bytes;
  encode_request(request, bytes);
  return bytes;
}

/// The pauses between connects, as in an agent (docs/rendezvous.md).
constexpr auto kFirstPause = 100ms;
constexpr auto kLongestPause = 2000ms;
constexpr auto kLongestPatience = 30'000ms;

std::string run_id(int run) {
  return "bench-" + std::to_string(::getpid()) + "-" + std::to_string(run);
}

}  // namespace

MusterNodes::MusterNodes(const MusterNodesOptions& options)
    : options_(options),
      nodes_(static_cast<std::size_t>(options.nodes)),
      set_(::epoll_create1(EPOLL_CLOEXEC)),
      buffer_(std::size_t{1} << 16),
      deadline_(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(options.limit_seconds))) {
  if (set_ < 0) fail("epoll_create1");
}
MusterNodes::~MusterNodes() {
  for (const Node& node : nodes_)
    if (node.fd >= 0) ::close(node.fd);
  ::close(set_);
}

double MusterNodes::join() {
  const auto begin = Clock::now();
  next_keep_alive_ = begin + kKeepAliveInterval;
  await_round(0);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    while (i - greeted_nodes_ >= options_.connecting) {
      keep_alive();
      poll(10ms);
    }
    connect(i);
    if (i % kConnectsInARow != 0) continue;
    keep_alive();
    poll(0ms);
  }
  finish_round();
  return seconds_since(begin);
}

double MusterNodes::restart() {
  const auto begin = Clock::now();
  const std::int64_t round = nodes_[0].known_round;
  await_round(round + 1);
  if (options_.script == Script::Bare) {
    for (Node& node : nodes_)
      send_bare_message(node);
  } else {
    Node& failed = nodes_[nodes_.size() / 2];
    failed_at_ = Clock::now();
    send_request(failed, WorkersFailed{{}, round, "rank 3 exited with 1"});
  }
  finish_round();
  return seconds_since(begin);
}

double MusterNodes::resume(int server) {
  resuming_ = true;
  missing_ = nodes_.size();
  const auto begin = Clock::now();
  if (::kill(server, SIGKILL) < 0) fail("kill");
  while (missing_ > 0) {
    if (Clock::now() >= deadline_)
      throw std::runtime_error(std::to_string(missing_) + " of " + std::to_string(nodes_.size()) +
                               " nodes have not resumed within the limit");
    give_up_silent();
    connect_again();
    keep_alive();
    poll(5ms);
  }
  resuming_ = false;
  return seconds_since(begin);
}

/// Gives up the connections on which the server has not greeted in time.
void MusterNodes::give_up_silent() {
  if (options_.patience <= 0ms) return;
  const auto now = Clock::now();
  for (Node& node : nodes_) {
    if (node.phase != Node::Phase::Greeting || node.fd < 0) continue;
    const auto patience = std::max<Clock::duration>(node.patience, options_.patience);
    if (now - node.connected_at < patience) continue;
    node.patience = std::min<Clock::duration>(2 * patience, kLongestPatience);
    handle_lost_connection(node, "greeting");
  }
}

void MusterNodes::connect_again() {
  const auto now = Clock::now();
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    if (nodes_[i].phase == Node::Phase::Away && nodes_[i].next_try <= now) connect(i);
}

double MusterNodes::idle(double seconds) {
  const auto begin = Clock::now();
  while (seconds_since(begin) < seconds)
    serve(10ms);
  return seconds_since(begin);
}

void MusterNodes::serve(std::chrono::milliseconds limit) {
  keep_alive();
  poll(limit);
}

// --- the sockets -------------------------------------------------------------------------------

void MusterNodes::connect(std::size_t i) {
  Node& node = nodes_[i];
  node.phase = Node::Phase::Greeting;
  node.connected_at = Clock::now();
  node.in.clear();
  node.out.clear();
  node.kept_alive.reset();
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
  const sockaddr_in server = loopback(0, options_.port);
  if (::connect(node.fd, reinterpret_cast<const sockaddr*>(&server), sizeof server) < 0 &&
      errno != EINPROGRESS)
    fail("connect");
  if (options_.tls) {
    // The socket may still be connecting: the pump waits until it is writable.
    auto joined = options_.tls->join(OwnedFd(node.fd), "127.0.0.1");
    if (!joined) throw std::runtime_error("TLS: " + joined.error().message());
    node.fd = joined->plain.release();
  }
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLET;
  event.data.u64 = i;
  if (::epoll_ctl(set_, EPOLL_CTL_ADD, node.fd, &event) < 0) fail("epoll_ctl");
  static const std::string greeting =
      c10d_bytes({.query = Query::Validate, .number = c10d::kValidationMagic}) +
      c10d_bytes({.query = Query::Ping, .number = 4711});
  send(node, greeting, 2);
}

/// Makes the node connect again: at once, and then after pauses that grow.
void MusterNodes::handle_lost_connection(Node& node, const char* call) {
  if (!resuming_) fail(call);
  ::close(std::exchange(node.fd, -1));
  const bool was_connected = node.phase > Node::Phase::Greeting;
  if (was_connected) {
    node.pause = kFirstPause;
    node.next_try = Clock::now();
  } else {
    // Knuth's linear congruential generator.
    random_ = random_ * 6364136223846793005U + 1442695040888963407U;
    const auto part = static_cast<int>(random_ >> 40U & 1023U);
    node.next_try = Clock::now() + node.pause / 2 + node.pause / 2 * part / 1024;
    node.pause = std::min<Clock::duration>(2 * node.pause, kLongestPause);
  }
  node.phase = Node::Phase::Away;
}

void MusterNodes::send(Node& node, std::string_view bytes, int messages) {
  traffic_.messages_to += messages;
  traffic_.bytes_to += static_cast<std::int64_t>(bytes.size());
  node.out += bytes;
  flush(node);
}

void MusterNodes::flush(Node& node) {
  while (!node.out.empty()) {
    const ssize_t sent = ::send(node.fd, node.out.data(), node.out.size(), MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == ENOTCONN)) return;
    if (sent < 0) return handle_lost_connection(node, "send");
    node.out.erase(0, static_cast<std::size_t>(sent));
  }
}

void MusterNodes::poll(std::chrono::milliseconds limit) {
  std::array<epoll_event, 256> events;
  const int count = ::epoll_wait(set_, events.data(), static_cast<int>(events.size()),
                                 static_cast<int>(limit.count()));
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    Node& node = nodes_[static_cast<std::size_t>(event.data.u64)];
    if (event.events & EPOLLOUT) flush(node);
    if (node.fd < 0) continue;  // flush() has lost the connection.
    if (event.events & (EPOLLIN | EPOLLERR | EPOLLHUP)) receive(node);
  }
}

void MusterNodes::receive(Node& node) {
  for (;;) {
    const ssize_t got = ::recv(node.fd, buffer_.data(), buffer_.size(), 0);
    if (got < 0 && errno == EAGAIN) break;
    if (got < 0 || (got == 0 && resuming_)) return handle_lost_connection(node, "recv");
    if (got == 0) throw std::runtime_error("the server has closed a node's connection");
    traffic_.bytes_from += got;
    node.in.append(buffer_.data(), static_cast<std::size_t>(got));
    if (static_cast<std::size_t>(got) < buffer_.size()) break;
  }
  while (node.fd >= 0 && handle_next_message(node))
    ++traffic_.messages_from;
}

// --- messages of the server --------------------------------------------------------------------

bool MusterNodes::handle_next_message(Node& node) {
  if (node.phase == Node::Phase::Greeting) {
    if (node.in.size() < sizeof(std::uint32_t)) return false;
    node.in.erase(0, sizeof(std::uint32_t));
    handle_greeting(node);
    return true;
  }
  if (node.in.size() < kNativeLengthBytes) return false;
  const auto length = read_native_length(node.in);  // A c10d value has the same form.
  if (!length) throw std::runtime_error(describe(length.error()));
  if (node.in.size() < kNativeLengthBytes + *length) return false;
  if (options_.script == Script::Bare) {
    enter_round(node, awaited_);
  } else {
    handle_json(node, {node.in.data() + kNativeLengthBytes, *length});
  }
  node.in.erase(0, kNativeLengthBytes + *length);
  return true;
}

void MusterNodes::handle_json(Node& node, std::string_view json) {
  const auto message = decode_native_message(json);
  if (!message) throw std::runtime_error(describe(message.error()));
  if (std::holds_alternative<NativeWaiting>(*message)) {
    ++traffic_.waitings;
    traffic_.waiting_bytes += static_cast<std::int64_t>(kNativeLengthBytes + json.size());
  }
  std::visit([&](const auto& m) { on(node, m); }, *message);
}

void MusterNodes::handle_greeting(Node& node) {
  node.phase = Node::Phase::Hello;
  ++greeted_nodes_;
  if (options_.script == Script::Bare) return send_bare_message(node);
  NativeHello hello{kNativeProtocolVersion, "bench", run_id(options_.run)};
  hello.resumes = options_.resumes;
  send_request(node, hello);
}

void MusterNodes::send_bare_message(Node& node) {
  node.phase = Node::Phase::Joining;
  const std::string key = "node-" + std::to_string(index_of(node));
  const std::string value = encode(NativeRequest(join_of(node)));
  send(node,
       c10d_bytes({.query = Query::Set, .key = key, .value = value}) +
           c10d_bytes({.query = Query::Get, .key = key}),
       1);
}

void MusterNodes::on(Node& node, const NativeWelcome&) {
  if (resuming_) return send_resume(node);
  send_join(node);
}

void MusterNodes::on(Node& node, const PrepareStore& message) {
  send_request(node, StoreReady{{}, message.round, name_of(node).addr, kWorkersPort});
}
void MusterNodes::on(Node& node, const RestartRound& message) {
  if (failed_at_) acknowledged_seconds_.push_back(seconds_since(*failed_at_));
  failed_at_.reset();
  node.known_round = std::max(node.known_round, message.round);
  node.known_life = message.life;
  if (node.phase == Node::Phase::Running) send_join(node);
}
void MusterNodes::on(Node& node, const RoundComplete& message) {
  const int rank = message.group_rank.value;
  if (message.round != awaited_ || message.group_world_size != options_.nodes)
    throw std::runtime_error("round " + std::to_string(message.round) + " of " +
                             std::to_string(message.group_world_size) + " nodes, wanted " +
                             std::to_string(awaited_) + " of " + std::to_string(options_.nodes));
  if (given_ranks_[static_cast<std::size_t>(rank)])
    throw std::runtime_error("rank " + std::to_string(rank) + " was given twice");
  if (node.rank >= 0 && node.rank != rank) throw std::runtime_error("a node's rank has changed");
  if (!message.store || !message.workers)
    throw std::runtime_error("a round without a store, or without the workers' ranks");
  given_ranks_[static_cast<std::size_t>(rank)] = true;
  node.rank = rank;
  node.known_life = message.life;
  node.round = message;
  enter_round(node, message.round);
}
void MusterNodes::on(Node&, const NativeWaiting&) {}

void MusterNodes::on(Node& node, const NativeAlive&) {
  if (node.kept_alive) answer_seconds_.push_back(seconds_since(*node.kept_alive));
  node.kept_alive.reset();
}

void MusterNodes::on(Node&, const NativeReached&) {}

void MusterNodes::on(Node& node, const Resumed& message) {
  if (!resuming_ || node.phase != Node::Phase::Joining) return;  // The message may come twice.
  if (message.round != node.known_round)
    throw std::runtime_error("a node has resumed another round");
  node.known_life = message.life;
  node.phase = Node::Phase::Running;
  --missing_;
}

void MusterNodes::on(Node&, const Rejoin& m) {
  throw std::runtime_error("a node was told to join again: " + m.why);
}

void MusterNodes::on(Node&, const RunClosed&) {
  throw std::runtime_error("the run was closed");
}

void MusterNodes::on(Node&, const NotAMember&) {
  throw std::runtime_error("a node was taken for lost");
}

void MusterNodes::on(Node&, const NativeChallenge&) {
  throw std::runtime_error("the server asks for a token");
}

void MusterNodes::on(Node&, const NativeRefused& m) {
  throw std::runtime_error("refused: " + m.text);
}

void MusterNodes::on(Node&, const JoinRefused& m) {
  throw std::runtime_error("join refused: " + m.text);
}

void MusterNodes::on(Node&, const RunEnded& m) {
  throw std::runtime_error("the run has ended: " + m.why);
}

// --- requests of a node ------------------------------------------------------------------------

void MusterNodes::send_request(Node& node, const NativeRequest& request) {
  send(node, encode(request), 1);
}
void MusterNodes::send_join(Node& node) {
  node.phase = Node::Phase::Joining;
  send_request(node, join_of(node));
}

void MusterNodes::send_resume(Node& node) {
  node.phase = Node::Phase::Joining;
  NodeResumed resumed;
  resumed.join = join_of(node);
  resumed.group_rank = node.rank;
  resumed.group_world_size = node.round.group_world_size;
  resumed.restart_count = node.round.restart_count;
  resumed.workers = node.round.workers;
  resumed.store = node.round.store;
  send_request(node, resumed);
}

NodeJoined MusterNodes::join_of(const Node& node) const {
  NodeJoined joined;
  joined.name = name_of(node);
  joined.local_world_size = 8;
  joined.role = "default";
  joined.run.min_nodes = joined.run.max_nodes = options_.nodes;
  joined.run.max_restarts = 1'000;
  joined.muster_version = "bench";
  joined.last_round = node.known_round;
  joined.life = node.known_life;
  if (!options_.resumes) return joined;
  joined.generation = node.round.generation;
  joined.instance = std::to_string(options_.run) + "-" + std::to_string(index_of(node));
  return joined;
}
std::size_t MusterNodes::index_of(const Node& node) const {
  return static_cast<std::size_t>(&node - nodes_.data());
}
NodeName MusterNodes::name_of(const Node& node) const {
  const std::size_t i = index_of(node);
  return {.addr = "10." + std::to_string(i >> 16) + "." + std::to_string(i >> 8 & 255) + "." +
                  std::to_string(i & 255),
          .pid = 100'000 + static_cast<std::int64_t>(i)};
}

// --- rounds ------------------------------------------------------------------------------------

void MusterNodes::await_round(std::int64_t round) {
  awaited_ = round;
  missing_ = nodes_.size();
  given_ranks_.assign(nodes_.size(), false);
}
void MusterNodes::enter_round(Node& node, std::int64_t round) {
  node.known_round = round;
  node.phase = Node::Phase::Running;
  --missing_;
}

void MusterNodes::finish_round() {
  while (missing_ > 0) {
    if (Clock::now() >= deadline_)
      throw std::runtime_error(std::to_string(missing_) + " of " + std::to_string(nodes_.size()) +
                               " nodes are not in round " + std::to_string(awaited_) +
                               " within the limit");
    keep_alive();
    poll(100ms);
  }
}

void MusterNodes::keep_alive() {
  const auto now = Clock::now();
  if (now < next_keep_alive_) return;
  next_keep_alive_ = now + kKeepAliveInterval;
  if (options_.script == Script::Bare) return;
  for (Node& node : nodes_) {
    // A node that has asked to resume need not send a keep-alive, too.
    if (node.phase < Node::Phase::Joining || (resuming_ && node.phase < Node::Phase::Running))
      continue;
    const std::int64_t before = traffic_.bytes_to;
    send_request(node, KeptAlive{});
    if (!node.kept_alive) node.kept_alive = Clock::now();
    ++traffic_.keep_alives;
    traffic_.keep_alive_bytes += traffic_.bytes_to - before;
  }
}

}  // namespace muster::bench
