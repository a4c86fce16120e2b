#include "musterctl/doctor_peer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "base/hex.h"
#include "base/net/name_lookup.h"
#include "base/net/spawn_task.h"
#include "base/system/clock.h"
#include "base/system/system_random.h"
#include "musterctl/interfaces.h"
#include "musterctl/pair_schedule.h"
#include "musterctl/peer_facts.h"
#include "musterctl/peer_json.h"
#include "musterctl/peer_reduce.h"
#include "musterctl/probe.h"
#include "rendezvous/client/store_client.h"

namespace muster::ctl {

namespace asio = boost::asio;

namespace {

// The other nodes may have to import torch from slow storage first.
constexpr Duration kNodesWithin = std::chrono::seconds(kTorchSeconds + 60);
constexpr Duration kAnswerWithin = std::chrono::seconds(60);
// Time for both directions, for the all-reduce, and for delays on a loaded machine. A late node is
// late by less than one turn: docs/decisions/0021-doctor-of-several-nodes.md.
constexpr Duration kTurn = std::chrono::seconds(2 * kProbeSeconds + kReduceSeconds + 30);
constexpr int kMaxPeerNodes = 1 << 16;

struct WorkerPlace {
  int rank = 0;
  int nodes = 0;
  std::string master;
  std::uint16_t port = 0;
  std::string generation;
};

std::string worker_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool whole_number(const std::string& text, int most, int& value) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && value >= 0 &&
         value <= most;
}

std::optional<WorkerPlace> worker_place() {
  WorkerPlace place{.master = worker_variable("MASTER_ADDR"),
                    .generation = worker_variable("MUSTER_GENERATION")};
  int port = 0;
  const bool known = whole_number(worker_variable("RANK"), kMaxPeerNodes, place.rank) &&
                     whole_number(worker_variable("WORLD_SIZE"), kMaxPeerNodes, place.nodes) &&
                     whole_number(worker_variable("MASTER_PORT"), 65535, port) &&
                     place.rank < place.nodes && !place.master.empty();
  if (!known) return std::nullopt;
  place.port = static_cast<std::uint16_t>(port);
  return place;
}

std::string new_secret() {
  std::array<std::uint8_t, kSecretDigits / 2> bytes{};
  if (!fill_random(bytes)) return {};
  return to_hex(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

/// Flushes each line: if this process is killed, the reader keeps the results so far.
bool print_line(std::string_view kind, const std::string& rest = {}) {
  const std::string line = std::string(kind) + rest + "\n";
  return std::fwrite(line.data(), 1, line.size(), stdout) == line.size() &&
         std::fflush(stdout) == 0;
}

class DoctorPeer {
 public:
  DoctorPeer(asio::io_context& loop, WorkerPlace place, const DoctorPeerOptions& options)
      : loop_(loop),
        place_(std::move(place)),
        options_(options),
        store_(loop.get_executor(), StoreClientOptions{.host = place_.master,
                                                       .port = place_.port,
                                                       .timeout = kAnswerWithin,
                                                       .reply_bytes = kMaxPeerJson}) {}

  /// Runs all tests, then stops the loop.
  asio::awaitable<void> run();
  const std::string& failure() const { return failure_; }

 private:
  asio::awaitable<bool> publish_own_facts();
  asio::awaitable<void> prepare_reduce();
  bool listen();
  asio::awaitable<void> await_nodes();
  asio::awaitable<void> look_up_master();
  asio::awaitable<void> test_pair(int peer, Instant deadline);
  asio::awaitable<void> test_before_peer(PeerFacts& facts, Instant deadline);
  asio::awaitable<void> test_after_peer(PeerFacts& facts, Instant deadline);
  asio::awaitable<Probe> test_direction(const NodeFacts& peer);
  asio::awaitable<std::optional<std::string>> await_value(std::string name, Instant deadline);
  asio::awaitable<void> publish(std::string name, std::string value);
  asio::awaitable<void> reduce(PeerFacts& facts, bool both_ways, Instant deadline);
  std::string key(const std::string& what, int from, int to) const;
  bool fail(const std::string& what) { return failure_ = what, false; }

  asio::io_context& loop_;
  WorkerPlace place_;
  DoctorPeerOptions options_;
  StoreClient store_;
  NodeFacts own_;
  std::string bound_address_;  // The chosen interface's address; empty: the route decides.
  std::string master_address_;
  std::vector<std::optional<NodeFacts>> nodes_;  // By rank; nothing: no facts from that node.
  std::unique_ptr<PeerReduce> reduce_;
  std::string failure_;
};

std::string DoctorPeer::key(const std::string& what, int from, int to) const {
  return "doctor/" + place_.generation + "/" + what + "/" + std::to_string(from) + "/" +
         std::to_string(to);
}

asio::awaitable<void> DoctorPeer::run() {
  if (co_await publish_own_facts()) {
    co_await await_nodes();
    const Instant begin = now();
    for (int round = 0; round < pair_rounds(place_.nodes); ++round)
      if (const auto peer = partner_in(round, place_.rank, place_.nodes))
        co_await test_pair(*peer, begin + (round + 1) * kTurn);
    print_line(kAllTested);
  }
  reduce_.reset();
  loop_.stop();
}

/// Starts to listen, and publishes this node's facts to all others.
asio::awaitable<bool> DoctorPeer::publish_own_facts() {
  if (options_.python.empty())
    own_.no_reduce = options_.no_python;
  else  // The program imports torch while this node prepares the rest.
    reduce_ = std::make_unique<PeerReduce>(loop_.get_executor(), options_.python);
  if (const auto connected = co_await store_.connect(); !connected)
    co_return fail("the workers' store at " + place_.master + ", port " +
                   std::to_string(place_.port) + " (rank 0): " + connected.error().message());
  own_.rank = place_.rank;
  own_.host = own_host_name();
  own_.muster = MUSTER_VERSION;
  own_.torch = options_.torch;
  own_.nccl = options_.nccl;
  if (!listen()) co_return false;
  co_await prepare_reduce();
  co_await publish(key("node", place_.rank, 0), to_json(own_));
  NodeFacts shown = own_;
  // If rank 0 publishes no address, the others use the address by which they reached it.
  if (shown.address.empty()) shown.address = place_.master;
  co_return print_line(kThisNode, to_json(shown));
}

asio::awaitable<void> DoctorPeer::prepare_reduce() {
  if (!reduce_) co_return;
  own_.no_reduce = co_await reduce_->ready();
  own_.no_reduce.resize(std::min<std::size_t>(own_.no_reduce.size(), 200));
  own_.reduces = own_.no_reduce.empty();
}

bool DoctorPeer::listen() {
  own_.secret = new_secret();
  if (own_.secret.empty()) return fail("the kernel gives no random numbers");
  if (const auto chosen = chosen_interface(interface_variables(), local_interfaces())) {
    own_.variable = chosen->variable;
    own_.address = bound_address_ = chosen->address;
  } else {
    own_.address = normal_address(store_.local_address());
    // Only this machine reaches rank 0 at a loopback address: rank 0 publishes no address then.
    if (place_.rank == 0 && is_loopback_address(own_.address) &&
        !is_loopback_address(place_.master))
      own_.address.clear();
  }
  std::vector<std::string> addresses;
  if (!own_.address.empty()) addresses.push_back(own_.address);
  auto listeners = listen_on(addresses, 0);
  if (!listeners) return fail("cannot listen: " + listeners.error().what());
  own_.port = listeners->front().endpoint.port();
  for (Listener& listener : *listeners)
    answer_probes(loop_.get_executor(), std::move(listener), own_.secret, own_.rank);
  return true;
}

/// Waits for the facts of all nodes. Nodes without facts are left out; the others test each other.
asio::awaitable<void> DoctorPeer::await_nodes() {
  const Instant deadline = now() + kNodesWithin;
  for (int rank = 0; rank < place_.nodes; ++rank) {
    const auto received = co_await await_value(key("node", rank, 0), deadline);
    std::optional<NodeFacts> node;
    if (received) node = read_node(*received);
    if (node && node->rank != rank) node.reset();
    nodes_.push_back(std::move(node));
  }
  co_await look_up_master();
}

asio::awaitable<void> DoctorPeer::look_up_master() {
  // Qualified, because client.cc's look_up is visible in a unity build, too.
  const NameLookup found = co_await muster::look_up(place_.master, kAnswerWithin);
  if (!found.addresses.empty()) master_address_ = found.addresses.front();
}

asio::awaitable<void> DoctorPeer::test_pair(int peer, Instant deadline) {
  const auto& node = nodes_[static_cast<std::size_t>(peer)];
  if (!node) co_return;
  PeerFacts facts{.node = *node};
  if (place_.rank < peer)
    co_await test_before_peer(facts, deadline);
  else
    co_await test_after_peer(facts, deadline);
  if (facts.to && facts.from) {
    const bool both_ways =
        facts.to->stage == ProbeStage::Done && facts.from->stage == ProbeStage::Done;
    co_await reduce(facts, both_ways, deadline);
  }
  print_line(to_json(facts));
}

// The two nodes of a pair test one after the other: the second test would slow the first one's
// pings.
asio::awaitable<void> DoctorPeer::test_before_peer(PeerFacts& facts, Instant deadline) {
  const int peer = facts.node.rank;
  const auto there = co_await await_value(key("here", peer, place_.rank), deadline);
  if (!there) co_return;
  facts.to = co_await test_direction(facts.node);
  co_await publish(key("way", place_.rank, peer), to_json(*facts.to));
  const Instant answer_by = now() + std::chrono::seconds(kProbeSeconds + 30);
  const auto received = co_await await_value(key("way", peer, place_.rank), answer_by);
  if (received) facts.from = read_probe(*received);
}

asio::awaitable<void> DoctorPeer::test_after_peer(PeerFacts& facts, Instant deadline) {
  const int peer = facts.node.rank;
  co_await publish(key("here", place_.rank, peer), "1");
  const Instant answer_by = deadline + std::chrono::seconds(kProbeSeconds + 30);
  const auto received = co_await await_value(key("way", peer, place_.rank), answer_by);
  if (received) facts.from = read_probe(*received);
  facts.to = co_await test_direction(facts.node);
  co_await publish(key("way", place_.rank, peer), to_json(*facts.to));
}

asio::awaitable<Probe> DoctorPeer::test_direction(const NodeFacts& peer) {
  ProbeTarget target{.address = peer.address.empty() ? master_address_ : peer.address,
                     .port = peer.port,
                     .secret = peer.secret,
                     .rank = peer.rank,
                     .own_rank = place_.rank,
                     .own_address = bound_address_};
  co_return co_await probe_peer(loop_.get_executor(), std::move(target));
}

/// Both nodes publish first whether they are ready, so that neither waits for one that is not.
asio::awaitable<void> DoctorPeer::reduce(PeerFacts& facts, bool both_ways, Instant deadline) {
  const int peer = facts.node.rank;
  if (!own_.reduces || !facts.node.reduces) co_return;
  const bool ready = reduce_->works() && both_ways;
  co_await publish(key("sum", place_.rank, peer), ready ? "1" : "0");
  const auto received =
      co_await await_value(key("sum", peer, place_.rank), deadline + kAnswerWithin);
  if (!ready || !received || *received != "1") co_return;
  const bool first = place_.rank < peer;
  std::string name = first ? key("gloo", place_.rank, peer) : key("gloo", peer, place_.rank);
  facts.reduce = co_await reduce_->sum(std::move(name), first ? 0 : 1);
}

/// Waits for the store's value under this name. Nothing: there was none in time, or the store is
/// gone.
asio::awaitable<std::optional<std::string>> DoctorPeer::await_value(std::string name,
                                                                    Instant deadline) {
  std::vector<std::string> names{name};
  const Duration left = std::max<Duration>(deadline - now(), std::chrono::seconds(1));
  const auto there = co_await store_.wait(names, left);
  if (!there) co_return std::nullopt;
  auto value = co_await store_.get(name);
  if (!value) co_return std::nullopt;
  co_return *std::move(value);
}

/// Errors are ignored: if the store is gone, the next wait for a value fails.
asio::awaitable<void> DoctorPeer::publish(std::string name, std::string value) {
  co_await store_.set(name, value);
}

}  // namespace

int run_doctor_peer(const DoctorPeerOptions& options) {
  ::signal(SIGPIPE, SIG_IGN);  // The Python program, or the reader of stdout, may end first.
  auto place = worker_place();
  if (!place) {
    std::fprintf(stderr, "musterctl doctor-peer: muster starts it, for musterctl doctor --nodes\n");
    return 2;
  }
  asio::io_context loop(1);
  DoctorPeer peer(loop, *std::move(place), options);
  spawn_task(loop.get_executor(), "doctor_peer", peer.run());
  loop.run();
  if (!peer.failure().empty()) print_line(kTestFailed, peer.failure());
  return 0;
}

}  // namespace muster::ctl
