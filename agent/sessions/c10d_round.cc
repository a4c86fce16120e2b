#include "agent/sessions/c10d_round.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <spdlog/spdlog.h>

#include "base/net/no_throw.h"
#include "base/system/clock.h"

namespace muster {

namespace asio = boost::asio;

namespace {

constexpr std::int64_t kEarlierRounds = 64;
// At the exit barrier the store may be gone because its node has ended: a short limit is enough.
constexpr Duration kBarrierDial = std::chrono::seconds(10);

struct Answer {
  explicit Answer(const asio::any_io_executor& executor) : limit(executor) {}
  asio::steady_timer limit;
  std::optional<Result<HostedStore>> result;
};

/// Calls `host` and returns its result, or timed_out if there is none within `limit`. `host` may
/// call its `done` on any thread, also after the limit.
asio::awaitable<Result<HostedStore>> hosted_store(asio::any_io_executor executor, HostStore host,
                                                  Duration limit) {
  const auto timed_out = make_error_code(boost::system::errc::timed_out);
  if (!host) co_return timed_out;
  const auto answer = std::make_shared<Answer>(executor);
  answer->limit.expires_after(limit);
  host([answer, executor](const HostedStoreResult& store) {
    asio::post(executor, [answer, store] {
      if (store)
        answer->result = *store;
      else
        answer->result = store.error().code;
      answer->limit.cancel();
    });
  });
  co_await answer->limit.async_wait(kNoThrow);
  const auto& result = answer->result;
  if (!result) co_return timed_out;
  co_return *result;
}

}  // namespace

C10dRound::C10dRound(asio::any_io_executor executor, const AgentOptions& options, RoundReady ready)
    : executor_(std::move(executor)),
      options_(options),
      ready_(std::move(ready)),
      dialer_(executor_,
              {options.rendezvous.host, options.rendezvous.port, settings_.read_timeout}) {}

void C10dRound::close() {
  closed_ = true;
  dialer_.close();
  if (client_) client_->close();
}

std::string C10dRound::prefix(std::int64_t round) const {
  return "torch.rendezvous." + settings_.run_id + "." + std::to_string(round);
}

EarlierRounds C10dRound::earlier() const {
  EarlierRounds rounds{.rank0_addr = ready_.nodes[0].addr};
  const std::int64_t oldest = std::max<std::int64_t>(0, ready_.round - kEarlierRounds);
  for (std::int64_t round = ready_.round - 1; round >= oldest; --round)
    rounds.prefixes.push_back(prefix(round));
  return rounds;
}

RoundExchange C10dRound::exchange() const {
  RoundExchangeOptions options{.prefix = prefix(ready_.round),
                               .group_rank = {ready_.rank},
                               .group_world_size = static_cast<int>(ready_.nodes.size()),
                               .role = options_.role,
                               .local_world_size = options_.local_world_size,
                               .identical = options_.rendezvous.worker_identical,
                               .timeout = settings_.read_timeout};
  const std::int64_t round = ready_.round;
  return RoundExchange(client_, std::move(options), [round](const std::string& waiting) {
    spdlog::warn("round {}: waiting for {}", round, waiting);
  });
}

asio::awaitable<ExchangeResult<void>> C10dRound::connect(Duration limit) {
  client_ = co_await dialer_.dial(now() + limit);
  if (client_ && !closed_) co_return ExchangeResult<void>();
  ExchangeError none{"no connection with the store: " + dialer_.last_error()};
  co_return none;
}

asio::awaitable<ExchangeResult<MasterAddress>> C10dRound::master(RoundExchange& exchange,
                                                                 HostStore host) {
  if (ready_.rank != 0) {
    EarlierRounds rounds = earlier();
    co_return co_await exchange.find_master(std::move(rounds));
  }
  const auto hosted = co_await hosted_store(executor_, std::move(host), settings_.read_timeout);
  if (!hosted) {
    ExchangeError none{"the workers' store: " + hosted.error().message()};
    co_return none;
  }
  const MasterAddress master{ready_.nodes[0].addr, hosted->port};
  MasterAddress published = master;
  const auto done = co_await exchange.publish_master(std::move(published));
  if (!done) co_return done.error();
  co_return master;
}

asio::awaitable<ExchangeResult<SessionRound>> C10dRound::begin(HostStore host) {
  const auto connected = co_await connect(settings_.read_timeout);
  if (!connected) co_return connected.error();
  RoundExchange exchange = this->exchange();
  const auto published = co_await exchange.publish_role();
  if (!published) co_return published.error();
  const auto found = co_await master(exchange, std::move(host));
  if (!found) co_return found.error();
  const auto ranks = co_await exchange.ranks();
  if (!ranks) co_return ranks.error();
  client_->close();  // The exit barrier may be days later, and opens a new connection.
  SessionRound round{.round = ready_.round,
                     .facts = {.group_rank = {ready_.rank},
                               .group_world_size = static_cast<int>(ready_.nodes.size()),
                               .ranks = *ranks,
                               .master_addr = found->addr,
                               .master_port = found->port}};
  co_return round;
}

asio::awaitable<ExchangeResult<void>> C10dRound::end(Duration limit) {
  const auto connected = co_await connect(std::min(settings_.read_timeout, kBarrierDial));
  if (!connected) co_return connected.error();
  RoundExchange exchange = this->exchange();
  co_return co_await exchange.exit_barrier(limit);
}

}  // namespace muster
