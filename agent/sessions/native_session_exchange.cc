// NativeSession: what it exchanges with torchrun nodes of its round, through the host's store.

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <spdlog/spdlog.h>

#include "agent/sessions/native_session.h"
#include "base/address_scope.h"
#include "base/net/spawn_task.h"

namespace muster {

namespace asio = boost::asio;

namespace {

// At the exit barrier the store may be gone because its node has ended: a short limit is enough.
constexpr Duration kMaxBarrierConnect = std::chrono::seconds(10);

}  // namespace

void NativeSession::apply(const NativeParticipant::ExchangeThroughStore& action) {
  spawn_task(loop_.get_executor(), "round_exchange", exchange(alive_, action.round));
}

void NativeSession::apply(const NativeParticipant::EnterExitBarrier&) {
  if (store_) spawn_task(loop_.get_executor(), "exit_barrier", exit_barrier(alive_));
}

RoundExchange NativeSession::round_exchange(const RoundFacts& facts, std::int64_t round) const {
  return RoundExchange(
      store_,
      {.prefix = "torch.rendezvous." + settings_.run_id + "." + std::to_string(round),
       .group_rank = facts.group_rank,
       .group_world_size = facts.group_world_size,
       .role = agent_.role,
       .local_world_size = agent_.local_world_size,
       .identical = agent_.rendezvous.worker_identical,
       .timeout = settings_.read_timeout},
      [](const std::string& whom) { spdlog::warn("waiting for {}", whom); });
}

std::shared_ptr<StoreClient> NativeSession::store_client(Duration timeout) const {
  const RendezvousEndpoint& host = options_.endpoints.at(options_.endpoint);
  return std::make_shared<StoreClient>(loop_.get_executor(),
                                       StoreClientOptions{.host = host.host,
                                                          .port = host.port,
                                                          .timeout = timeout,
                                                          .tls = options_.host.tls,
                                                          .tls_name = options_.host.tls_name});
}

asio::awaitable<void> NativeSession::exchange(std::shared_ptr<bool> alive, RoundComplete round) {
  const int number = ++exchanges_;
  const std::int64_t round_number = round.round;
  const auto is_over = [this, alive, number, round_number] {
    return !*alive || number != exchanges_ || !participant_.exchanging(round_number);
  };
  RoundFacts facts = facts_of(round);
  std::optional<StoreAddress> store = round.store;
  store_ = store_client(settings_.read_timeout);
  const auto client = store_;
  const Result<void> connected = co_await client->connect();
  if (is_over()) co_return;
  std::string error = connected ? std::string() : connected.error().message();
  RoundExchange others = round_exchange(facts, round.round);
  if (error.empty()) {
    const auto published = co_await others.publish_role();
    if (!published) error = published.error().reason;
  }
  if (is_over()) co_return;
  if (error.empty() && facts.group_rank.value == 0) {
    // Torchrun nodes learn rank 0's address only from this key. The round's store address is used,
    // because the host has replaced a loopback address in it by one that other nodes can reach.
    MasterAddress master{options_.address, 0};
    if (store) master = {store->addr, store->port};
    const auto published = co_await others.publish_master(master);
    if (!published) error = published.error().reason;
  } else if (error.empty() && !store) {
    EarlierRounds earlier;
    const auto master = co_await others.find_master(earlier);
    if (master)
      store = StoreAddress{master->addr, master->port};
    else
      error = master.error().reason;
  }
  if (is_over()) co_return;
  if (error.empty()) {
    const auto ranks = co_await others.ranks();
    if (ranks)
      facts.ranks = *ranks;
    else
      error = ranks.error().reason;
  }
  if (is_over()) co_return;
  client->close();  // The exit barrier may be days later, and opens a new connection.
  if (!store || !error.empty())
    co_return feed(NativeParticipant::ExchangeFailed{round_number, error});
  facts.master_addr = with_scope(store->addr, options_.scope);
  facts.master_port = store->port;
  facts_ = facts;
  round_number_ = round_number;
  feed(NativeParticipant::ExchangeDone{round_number});
}

// Torchrun nodes wait at their exit barrier until all nodes are there, and then close the run.
asio::awaitable<void> NativeSession::exit_barrier(std::shared_ptr<bool> alive) {
  store_ = store_client(std::min(settings_.read_timeout, kMaxBarrierConnect));
  const auto client = store_;
  const Result<void> connected = co_await client->connect();
  if (!*alive || participant_.phase() != NativeParticipant::Phase::Finished) co_return;
  std::string error = connected ? std::string() : connected.error().message();
  if (error.empty()) {
    RoundExchange others = round_exchange(facts_, round_number_);
    const auto all = co_await others.exit_barrier(kExitBarrier);
    if (!*alive || participant_.phase() != NativeParticipant::Phase::Finished) co_return;
    if (!all) error = all.error().reason;
  }
  if (!error.empty()) spdlog::warn("the exit barrier was left: {}", error);
  feed(NativeParticipant::ExitBarrierLeft{});
}

}  // namespace muster
