#include "agent/sessions/static_session.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <spdlog/spdlog.h>

#include "agent/sessions/round_exchange.h"
#include "agent/sessions/store_dialer.h"
#include "agent/sessions/store_thread.h"
#include "rendezvous/core/seconds_text.h"
#include "rendezvous/net/clock.h"
#include "rendezvous/net/spawn_task.h"

namespace muster {

namespace asio = boost::asio;

namespace {

constexpr Duration kFirstDial = std::chrono::seconds(3);
constexpr Duration kLongestDial = std::chrono::seconds(48);
// A store that is gone by the exit barrier has had its reasons.
constexpr Duration kExitBarrierDial = std::chrono::seconds(10);

}  // namespace

class StaticSession::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::any_io_executor executor, StaticSessionOptions options, Handlers handlers)
      : executor_(std::move(executor)),
        options_(std::move(options)),
        handlers_(std::move(handlers)) {}

  void join();
  void workers_failed() { ++failures_; }
  void finished(bool succeeded, const std::string& what);
  void close();
  void drop_store() { store_.reset(); }

 private:
  asio::awaitable<void> begin();
  asio::awaitable<void> end(SessionEnd result);
  asio::awaitable<ExchangeResult<void>> connect(std::shared_ptr<StoreDialer> dialer,
                                                Duration limit);
  asio::awaitable<ExchangeResult<AssignedRanks>> enter();
  asio::awaitable<ExchangeResult<void>> barrier();
  std::optional<std::string> host();
  RoundExchange exchange() const;
  void cancel();
  void fail(const std::string& reason);

  asio::any_io_executor executor_;
  StaticSessionOptions options_;
  Handlers handlers_;
  std::unique_ptr<StoreThread> store_;
  std::shared_ptr<StoreDialer> dialer_;
  std::shared_ptr<StoreClient> client_;
  std::uint64_t step_ = 0;  // What a join() or finished() before the last one comes to is ignored.
  bool announced_ = false;
  bool over_ = false;
  std::int64_t rounds_ = 0;
  int failures_ = 0;
};

StaticSession::StaticSession(asio::any_io_executor executor, StaticSessionOptions options,
                             Handlers handlers)
    : impl_(std::make_shared<Impl>(std::move(executor), std::move(options), std::move(handlers))) {}
StaticSession::~StaticSession() {
  impl_->close();
  impl_->drop_store();
}
void StaticSession::join() {
  impl_->join();
}
void StaticSession::workers_failed(const std::string& /*what*/) {
  impl_->workers_failed();
}
void StaticSession::finished(bool succeeded, const std::string& what) {
  impl_->finished(succeeded, what);
}
void StaticSession::leave() {
  impl_->close();
}
void StaticSession::close() {
  impl_->close();
}

void StaticSession::Impl::cancel() {
  ++step_;
  if (dialer_) dialer_->close();
  if (client_) client_->close();
}

void StaticSession::Impl::close() {
  over_ = true;
  handlers_ = {};
  cancel();
}

void StaticSession::Impl::fail(const std::string& reason) {
  const auto handler = handlers_.on_failed;
  close();
  if (handler) handler(reason);
}

void StaticSession::Impl::join() {
  if (over_) return;
  cancel();
  auto task = [](std::shared_ptr<Impl> self) -> asio::awaitable<void> { co_await self->begin(); };
  spawn_task(executor_, "static_session", task(shared_from_this()));
}

void StaticSession::Impl::finished(bool succeeded, const std::string& what) {
  if (over_) return;
  cancel();
  SessionEnd result{.succeeded = succeeded, .why = what};
  auto task = [](std::shared_ptr<Impl> self, SessionEnd end) -> asio::awaitable<void> {
    co_await self->end(std::move(end));
  };
  spawn_task(executor_, "static_session_end", task(shared_from_this(), std::move(result)));
}

/// Node rank 0: the store, once for the life of the agent. Otherwise, or if it is there: nothing.
std::optional<std::string> StaticSession::Impl::host() {
  if (options_.node_rank != 0 || store_) return std::nullopt;
  StoreServerOptions options{.port = options_.port};
  auto store = StoreThread::start(std::move(options));
  if (!store)
    return "node rank 0 cannot host the store at port " + std::to_string(options_.port) +
           " (--master-port, or the port of --rdzv-endpoint): " + store.error().what();
  store_ = std::move(*store);
  options_.port = store_->port();
  return std::nullopt;
}

RoundExchange StaticSession::Impl::exchange() const {
  RoundExchangeOptions options{.prefix = options_.run_id,
                               .group_rank = {options_.node_rank},
                               .group_world_size = options_.nodes,
                               .role = options_.role,
                               .local_world_size = options_.local_world_size,
                               .identical = options_.worker_identical,
                               .timeout = options_.timeout,
                               .timeout_option = "--rdzv-conf timeout"};
  return RoundExchange(client_, std::move(options),
                       [](const std::string& waiting) { spdlog::warn("waiting for {}", waiting); });
}

asio::awaitable<ExchangeResult<void>> StaticSession::Impl::connect(
    std::shared_ptr<StoreDialer> dialer, Duration limit) {
  const Instant deadline = now() + limit;
  const std::string store = endpoint_text(options_.host, options_.port);
  Duration slice = kFirstDial;
  std::string told;
  for (;;) {
    client_ = co_await dialer->dial(std::min(deadline, now() + slice));
    if (client_) co_return ExchangeResult<void>();
    if (dialer->closed() || now() >= deadline) break;
    if (told != dialer->last_error()) {
      told = dialer->last_error();
      spdlog::warn("waiting for node rank 0 at {}: {}", store, told);
    }
    slice = std::min(2 * slice, kLongestDial);
  }
  ExchangeError none{"node rank 0 does not answer at " + store + " within " + seconds_text(limit) +
                     " (--rdzv-conf timeout); the last try: " + dialer->last_error()};
  co_return none;
}

asio::awaitable<ExchangeResult<AssignedRanks>> StaticSession::Impl::enter() {
  const auto connected = co_await connect(dialer_, options_.timeout);
  if (!connected) co_return connected.error();
  // A torchrun node that hosts waits until as many have said so as there are nodes.
  if (!std::exchange(announced_, true)) {
    const auto announced = co_await client_->announce_worker();
    if (!announced) {
      ExchangeError lost{"the store of node rank 0: " + announced.error().message()};
      co_return lost;
    }
  }
  RoundExchange exchange = this->exchange();
  const auto told = co_await exchange.publish_role();
  if (!told) co_return told.error();
  co_return co_await exchange.ranks();
}

asio::awaitable<void> StaticSession::Impl::begin() {
  const std::uint64_t step = step_;
  if (const auto error = host(); error) co_return fail(*error);
  const std::string host = options_.node_rank == 0 ? "127.0.0.1" : options_.host;
  StoreDialer::Target target{host, options_.port};
  dialer_ = std::make_shared<StoreDialer>(executor_, std::move(target));
  const auto ranks = co_await enter();
  if (over_ || step != step_) co_return;
  if (!ranks) co_return fail(ranks.error().reason);
  client_->close();
  SessionRound round{.round = rounds_++,
                     .facts = {.group_rank = {options_.node_rank},
                               .group_world_size = options_.nodes,
                               .ranks = *ranks,
                               .master_addr = options_.host,
                               .master_port = options_.port,
                               .restart_count = failures_}};
  if (const auto handler = handlers_.on_round) handler(std::move(round));
}

asio::awaitable<ExchangeResult<void>> StaticSession::Impl::barrier() {
  const std::string host = options_.node_rank == 0 ? "127.0.0.1" : options_.host;
  StoreDialer::Target target{host, options_.port};
  dialer_ = std::make_shared<StoreDialer>(executor_, std::move(target));
  const auto connected = co_await connect(dialer_, kExitBarrierDial);
  if (!connected) co_return connected.error();
  RoundExchange exchange = this->exchange();
  const auto done = co_await exchange.exit_barrier(options_.exit_barrier);
  // Another answer comes after those that the other nodes wait for: whoever hosts may go then.
  std::vector<std::string> keys{options_.run_id};
  if (done && options_.node_rank == 0) (void)co_await client_->check(std::move(keys));
  co_return done;
}

asio::awaitable<void> StaticSession::Impl::end(SessionEnd result) {
  const std::uint64_t step = step_;
  if (result.succeeded && rounds_ > 0 && options_.nodes > 1) {
    const auto done = co_await barrier();
    if (over_ || step != step_) co_return;
    // As torchrun has it, the success does not depend on it.
    if (!done) spdlog::warn("exit_barrier_failed reason=\"{}\"", done.error().reason);
  }
  const auto handler = handlers_.on_end;
  close();
  if (handler) handler(std::move(result));
}

}  // namespace muster
