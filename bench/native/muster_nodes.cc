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

/// A third of the lease, as an agent does.
constexpr auto kKeepAliveInterval = 5000ms / 3;
/// Between connects we listen to those who are connected.
constexpr std::size_t kConnectsInARow = 64;
/// Before the search for a free port gets long: from so many on, another loopback address.
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

/// As an agent's: docs/rendezvous.md.
constexpr auto kFirstPause = 100ms;
constexpr auto kLongestPause = 2000ms;

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
    while (i - greeted_ >= options_.connecting) {
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
  const std::int64_t round = nodes_[0].told;
  await_round(round + 1);
  if (options_.script == Script::Bare) {
    for (Node& node : nodes_)
      bare_message(node);
  } else {
    const std::size_t who = nodes_.size() / 2;
    failed_at_ = Clock::now();
    say(nodes_[who], WorkersFailed{{}, round, "rank 3 exited with 1"});
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
    connect_again();
    keep_alive();
    poll(5ms);
  }
  resuming_ = false;
  return seconds_since(begin);
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
    // It may still be connecting: the pump waits for that as for any other room to write.
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

/// Its connection is lost. It connects again at once, and then after pauses that grow.
void MusterNodes::lost(Node& node, const char* call) {
  if (!resuming_) fail(call);
  ::close(std::exchange(node.fd, -1));
  const bool was_connected = node.phase > Node::Phase::Greeting;
  if (was_connected) {
    node.pause = kFirstPause;
    node.next_try = Clock::now();
  } else {
    random_ = random_ * 6364136223846793005U + 1442695040888963407U;  // Knuth's.
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
    if (sent < 0) return lost(node, "send");
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
    if (node.fd < 0) continue;  // It was lost just now.
    if (event.events & (EPOLLIN | EPOLLERR | EPOLLHUP)) receive(node);
  }
}

void MusterNodes::receive(Node& node) {
  for (;;) {
    const ssize_t got = ::recv(node.fd, buffer_.data(), buffer_.size(), 0);
    if (got < 0 && errno == EAGAIN) break;
    if (got < 0 || (got == 0 && resuming_)) return lost(node, "recv");
    if (got == 0) throw std::runtime_error("the server has closed a node's connection");
    traffic_.bytes_from += got;
    node.in.append(buffer_.data(), static_cast<std::size_t>(got));
    if (static_cast<std::size_t>(got) < buffer_.size()) break;
  }
  while (node.fd >= 0 && take_message(node))
    ++traffic_.messages_from;
}

// --- what comes --------------------------------------------------------------------------------

bool MusterNodes::take_message(Node& node) {
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
  if (options_.script == Script::Bare) {
    in_round(node, awaited_);
  } else {
    take_json(node, {node.in.data() + kNativeLengthBytes, *length});
  }
  node.in.erase(0, kNativeLengthBytes + *length);
  return true;
}

void MusterNodes::take_json(Node& node, std::string_view json) {
  const auto message = decode_native_message(json);
  if (!message) throw std::runtime_error(describe(message.error()));
  if (std::holds_alternative<NativeWaiting>(*message)) {
    ++traffic_.waitings;
    traffic_.waiting_bytes += static_cast<std::int64_t>(kNativeLengthBytes + json.size());
  }
  std::visit([&](const auto& m) { on(node, m); }, *message);
}

void MusterNodes::greeted(Node& node) {
  node.phase = Node::Phase::Hello;
  ++greeted_;
  if (options_.script == Script::Bare) return bare_message(node);
  NativeHello hello{kNativeProtocolVersion, "bench", run_id(options_.run)};
  hello.resumes = options_.resumes;
  say(node, hello);
}

void MusterNodes::bare_message(Node& node) {
  node.phase = Node::Phase::Joining;
  const std::string key = "node-" + std::to_string(index_of(node));
  const std::string value = encode(NativeRequest(join_of(node)));
  send(node,
       c10d_bytes({.query = Query::Set, .key = key, .value = value}) +
           c10d_bytes({.query = Query::Get, .key = key}),
       1);
}

void MusterNodes::on(Node& node, const NativeWelcome&) {
  if (resuming_) return say_resume(node);
  say_join(node);
}

void MusterNodes::on(Node& node, const PrepareStore& message) {
  say(node, StoreReady{{}, message.round, name_of(node).addr, kWorkersPort});
}
void MusterNodes::on(Node& node, const RestartRound& message) {
  if (failed_at_) acknowledged_seconds_.push_back(seconds_since(*failed_at_));
  failed_at_.reset();
  node.told = std::max(node.told, message.round);
  node.told_by = message.life;
  if (node.phase == Node::Phase::Running) say_join(node);
}
void MusterNodes::on(Node& node, const RoundComplete& message) {
  const int rank = message.group_rank.value;
  if (message.round != awaited_ || message.group_world_size != options_.nodes)
    throw std::runtime_error("round " + std::to_string(message.round) + " of " +
                             std::to_string(message.group_world_size) + " nodes, wanted " +
                             std::to_string(awaited_) + " of " + std::to_string(options_.nodes));
  if (taken_[static_cast<std::size_t>(rank)])
    throw std::runtime_error("rank " + std::to_string(rank) + " was given twice");
  if (node.rank >= 0 && node.rank != rank) throw std::runtime_error("a node's rank has changed");
  if (!message.store || !message.workers)
    throw std::runtime_error("a round without a store, or without the workers' ranks");
  taken_[static_cast<std::size_t>(rank)] = true;
  node.rank = rank;
  node.told_by = message.life;
  node.round = message;
  in_round(node, message.round);
}
void MusterNodes::on(Node&, const NativeWaiting&) {}

void MusterNodes::on(Node& node, const NativeAlive&) {
  if (node.kept_alive) answer_seconds_.push_back(seconds_since(*node.kept_alive));
  node.kept_alive.reset();
}

void MusterNodes::on(Node&, const NativeReached&) {}

void MusterNodes::on(Node& node, const Resumed& message) {
  if (!resuming_ || node.phase != Node::Phase::Joining) return;  // It may be told twice.
  if (message.round != node.told) throw std::runtime_error("a node has resumed another round");
  node.told_by = message.life;
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

// --- what a node says --------------------------------------------------------------------------

void MusterNodes::say(Node& node, const NativeRequest& request) {
  send(node, encode(request), 1);
}
void MusterNodes::say_join(Node& node) {
  node.phase = Node::Phase::Joining;
  say(node, join_of(node));
}

void MusterNodes::say_resume(Node& node) {
  node.phase = Node::Phase::Joining;
  NodeResumed resumed;
  resumed.join = join_of(node);
  resumed.group_rank = node.rank;
  resumed.group_world_size = node.round.group_world_size;
  resumed.restart_count = node.round.restart_count;
  resumed.workers = node.round.workers;
  resumed.store = node.round.store;
  say(node, resumed);
}

NodeJoined MusterNodes::join_of(const Node& node) const {
  NodeJoined joined;
  joined.name = name_of(node);
  joined.local_world_size = 8;
  joined.role = "default";
  joined.run.min_nodes = joined.run.max_nodes = options_.nodes;
  joined.run.max_restarts = 1'000;
  joined.muster_version = "bench";
  joined.last_round = node.told;
  joined.life = node.told_by;
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
  taken_.assign(nodes_.size(), false);
}
void MusterNodes::in_round(Node& node, std::int64_t round) {
  node.told = round;
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
    // A node that waits for an answer to resume has said more than that it lives.
    if (node.phase < Node::Phase::Joining || (resuming_ && node.phase < Node::Phase::Running))
      continue;
    const std::int64_t before = traffic_.bytes_to;
    say(node, KeptAlive{});
    if (!node.kept_alive) node.kept_alive = Clock::now();
    ++traffic_.keep_alives;
    traffic_.keep_alive_bytes += traffic_.bytes_to - before;
  }
}

}  // namespace muster::bench
