#include "agent/sessions/static_session.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <spdlog/spdlog.h>

#include "agent/core/waiting_advice.h"
#include "agent/sessions/endpoint_check.h"
#include "agent/sessions/own_notice.h"
#include "agent/sessions/store_dialer.h"
#include "agent/sessions/store_thread.h"
#include "base/net/spawn_task.h"
#include "base/seconds_text.h"
#include "base/system/clock.h"

namespace muster {

namespace asio = boost::asio;

namespace {

constexpr Duration kFirstDial = std::chrono::seconds(3);
constexpr Duration kLongestDial = std::chrono::seconds(48);
constexpr Duration kAddressCheck = std::chrono::seconds(10);
// The nodes that wait look for a refusal every two seconds. Shorter than the agent's own limit.
constexpr Duration kReadRefusalWithin = std::chrono::seconds(7);
// At the exit barrier the store may be gone because node rank 0 has ended: a short limit is enough.
constexpr Duration kExitBarrierDial = std::chrono::seconds(10);

/// The error without the address in front of it, where the sentence has that already.
std::string without_place(const std::string& error, const std::string& place) {
  return error.starts_with(place + ": ") ? error.substr(place.size() + 2) : error;
}

class StaticSession final : public RendezvousSession,
                            public std::enable_shared_from_this<StaticSession> {
 public:
  StaticSession(asio::any_io_executor executor, const AgentOptions& options, Handlers handlers,
                Duration exit_barrier)
      : executor_(std::move(executor)),
        options_(options),
        port_(options.rendezvous.port),
        exit_barrier_(exit_barrier),
        handlers_(std::move(handlers)),
        notice_(executor_, {.tell = handlers_.on_notice,
                            .end = [this](SessionEnd end) { leave_for_notice(std::move(end)); }}) {}

  void join() override;
  void workers_failed(const WorkersFailure& /*failure*/) override {
    ++failures_;
    notice_.round_ends();
  }
  void finished(bool succeeded, const std::string& what) override;
  void leave() override { close(); }
  /// The other nodes are not told: nobody hosts the rendezvous.
  void notify(const NodeNotice& notice) override { notice_.give(notice); }
  void close() override;
  void drain(const std::function<void()>& done) override;
  void drop_store() { store_.reset(); }

 private:
  asio::awaitable<void> begin();
  asio::awaitable<void> end(SessionEnd result);
  asio::awaitable<ExchangeResult<void>> connect(Duration limit);
  asio::awaitable<ExchangeResult<AssignedRanks>> exchange_ranks();
  asio::awaitable<ExchangeResult<void>> barrier();
  std::optional<std::string> start_store();
  asio::awaitable<void> check_address();
  int node_rank() const { return options_.rendezvous.node_rank; }
  RoundExchange exchange() const;
  void cancel();
  void fail(const ExchangeError& error);
  void leave_for_notice(SessionEnd end);

  asio::any_io_executor executor_;
  const AgentOptions& options_;
  std::uint16_t port_;  // The store's port.
  Duration exit_barrier_;
  Handlers handlers_;
  std::unique_ptr<StoreThread> store_;
  std::shared_ptr<StoreDialer> dialer_;
  std::shared_ptr<StoreClient> client_;
  std::uint64_t step_ =
      0;  // Grows with each join() or finished(): results of older ones are ignored.
  bool announced_ = false;
  std::string address_doubt_;  // What is wrong with the store's address, for people.
  bool over_ = false;
  bool refuses_all_ = false;  // As ExchangeError's.
  std::int64_t rounds_ = 0;
  int failures_ = 0;
  OwnNotice notice_;
};

void StaticSession::cancel() {
  ++step_;
  if (dialer_) dialer_->close();
  if (client_) client_->close();
}

void StaticSession::close() {
  over_ = true;
  notice_.cancel();
  handlers_ = {};
  cancel();
}

/// As after a signal: this node's workers stop, and the other nodes learn it from them.
void StaticSession::leave_for_notice(SessionEnd end) {
  const auto handler = handlers_.on_end;
  close();
  if (handler) handler(std::move(end));
}

void StaticSession::fail(const ExchangeError& error) {
  const auto handler = handlers_.on_failed;
  refuses_all_ = error.refuses_all;
  close();
  if (handler) handler(error.reason);
}

/// The other nodes read in this node's store why none of them can start.
void StaticSession::drain(const std::function<void()>& done) {
  if (!store_ || !refuses_all_) return done();
  store_->drain(now() + kReadRefusalWithin,
                [executor = executor_, done] { asio::post(executor, done); });
}

void StaticSession::join() {
  if (over_) return;
  cancel();
  notice_.round_ends();
  spawn_task(executor_, "static_session", keeping_alive(shared_from_this(), begin()));
}

void StaticSession::finished(bool succeeded, const std::string& what) {
  if (over_) return;
  cancel();
  notice_.cancel();
  SessionEnd result{.succeeded = succeeded, .why = what};
  spawn_task(executor_, "static_session_end",
             keeping_alive(shared_from_this(), end(std::move(result))));
}

/// On node rank 0: starts the store, once in the agent's life. Returns an error sentence, or
/// nothing if the store runs or another node hosts it.
std::optional<std::string> StaticSession::start_store() {
  if (node_rank() != 0 || store_) return std::nullopt;
  StoreServerOptions options{.port = port_};
  auto store = StoreThread::start(std::move(options));
  if (!store)
    return "node rank 0 cannot host the store at port " + std::to_string(port_) +
           " (--master-port, or the port of --rdzv-endpoint): " + store.error().what() +
           (options_.max_nodes > 1 && store.error().code == boost::system::errc::address_in_use
                ? "; or is it another node with --node-rank=0?"
                : "");
  store_ = std::move(*store);
  port_ = store_->port();
  if (options_.max_nodes > 1)
    spawn_task(executor_, "static_address", keeping_alive(shared_from_this(), check_address()));
  return std::nullopt;
}

/// On node rank 0: whether the address that the others use is this machine's. Said only in a wait:
/// an address that is forwarded to this machine works.
asio::awaitable<void> StaticSession::check_address() {
  EndpointChecker checker(options_.rendezvous.host);
  const EndpointCheck found = co_await checker.check(kAddressCheck, kAddressCheck);
  if (found.match == HostMatch::Elsewhere && found.lookup_error.empty())
    address_doubt_ = "; " + options_.rendezvous.host +
                     " is no address of this machine, but node rank 0 hosts the store there: is "
                     "this node another rank (--node-rank)?";
}

RoundExchange StaticSession::exchange() const {
  RoundExchangeOptions options{.prefix = options_.run_id,
                               .group_rank = {node_rank()},
                               .group_world_size = options_.max_nodes,
                               .role = options_.role,
                               .local_world_size = options_.local_world_size,
                               .identical = options_.rendezvous.worker_identical,
                               .timeout = options_.rendezvous.settings.timeout,
                               .timeout_option = "--rdzv-conf timeout"};
  options.waiting_where = " at " + endpoint_text(options_.rendezvous.host, port_) + ", for " +
                          seconds_text(options.timeout) + " at most (" + options.timeout_option +
                          ")";
  std::string more = "; " + waiting_advice(options_);
  return RoundExchange(client_, std::move(options),
                       [this, more = std::move(more)](const std::string& waiting) {
                         spdlog::warn("waiting for {}{}{}", waiting, more, address_doubt_);
                       });
}

asio::awaitable<ExchangeResult<void>> StaticSession::connect(Duration limit) {
  const Instant deadline = now() + limit;
  const std::string& host = options_.rendezvous.host;
  const std::string store = endpoint_text(host, port_);
  StoreDialer::Target target{node_rank() == 0 ? "127.0.0.1" : host, port_};
  const auto dialer = std::make_shared<StoreDialer>(executor_, std::move(target));
  dialer_ = dialer;
  Duration slice = kFirstDial;
  std::string logged_error;
  WaitReminder reminder;
  reminder.begin(now());
  for (;;) {
    client_ = co_await dialer->dial(std::min(deadline, now() + slice));
    if (client_) co_return ExchangeResult<void>();
    if (dialer->closed() || now() >= deadline) break;
    const bool is_due = reminder.due(now()).has_value();
    if (is_due || logged_error != dialer->last_error()) {
      logged_error = dialer->last_error();
      spdlog::warn("waiting for node rank 0 at {}, for {} at most (--rdzv-conf timeout): {}{}",
                   store, seconds_text(limit), without_place(logged_error, store),
                   node_rank() == 0 ? "" : "; that node runs the same command with --node-rank=0");
    }
    slice = std::min(2 * slice, kLongestDial);
  }
  ExchangeError none{"node rank 0 does not answer at " + store + " within " + seconds_text(limit) +
                     " (--rdzv-conf timeout); the last try: " + dialer->last_error()};
  co_return none;
}

asio::awaitable<ExchangeResult<AssignedRanks>> StaticSession::exchange_ranks() {
  const auto connected = co_await connect(options_.rendezvous.settings.timeout);
  if (!connected) co_return connected.error();
  // If node rank 0 is a torchrun, it waits until as many clients as there are nodes have announced
  // themselves.
  if (!std::exchange(announced_, true)) {
    const auto announced = co_await client_->announce_worker();
    if (!announced) {
      ExchangeError lost{"the store of node rank 0: " + announced.error().message()};
      co_return lost;
    }
  }
  RoundExchange exchange = this->exchange();
  std::string host = node_rank() == 0 ? options_.rendezvous.host : client_->local_address();
  std::string who = host + " (pid " + std::to_string(::getpid()) + ")";
  const auto compared = co_await exchange.compare_nodes(std::move(host));
  if (!compared) co_return compared.error();
  const auto claimed = co_await exchange.claim_rank(std::move(who));
  if (!claimed) co_return claimed.error();
  const auto published = co_await exchange.publish_role();
  if (!published) co_return published.error();
  co_return co_await exchange.ranks();
}

asio::awaitable<void> StaticSession::begin() {
  const std::uint64_t step = step_;
  if (const auto error = start_store(); error) co_return fail({*error});
  const auto ranks = co_await exchange_ranks();
  if (over_ || step != step_) co_return;
  if (!ranks) co_return fail(ranks.error());
  client_->close();
  SessionRound round{.round = rounds_++,
                     .facts = {.group_rank = {node_rank()},
                               .group_world_size = options_.max_nodes,
                               .ranks = *ranks,
                               .master_addr = options_.rendezvous.host,
                               .master_port = port_,
                               .restart_count = failures_}};
  if (const auto handler = handlers_.on_round) handler(std::move(round));
  notice_.round_begins(*ranks, options_.local_world_size);
}

asio::awaitable<ExchangeResult<void>> StaticSession::barrier() {
  const auto connected = co_await connect(kExitBarrierDial);
  if (!connected) co_return connected.error();
  RoundExchange exchange = this->exchange();
  const auto done = co_await exchange.exit_barrier(exit_barrier_);
  // The store answers in order. When this answer has come, the other nodes have theirs, and node
  // rank 0 may close the store.
  std::vector<std::string> keys{options_.run_id};
  if (done && node_rank() == 0) (void)co_await client_->check(std::move(keys));
  co_return done;
}

asio::awaitable<void> StaticSession::end(SessionEnd result) {
  const std::uint64_t step = step_;
  if (result.succeeded && rounds_ > 0 && options_.max_nodes > 1) {
    const auto done = co_await barrier();
    if (over_ || step != step_) co_return;
    // As under torchrun, a failed exit barrier does not change the success.
    if (!done) spdlog::warn("exit_barrier_failed reason=\"{}\"", done.error().reason);
  }
  const auto handler = handlers_.on_end;
  close();
  if (handler) handler(std::move(result));
}

}  // namespace

std::shared_ptr<RendezvousSession> make_static_session(asio::any_io_executor executor,
                                                       const AgentOptions& options,
                                                       RendezvousSession::Handlers handlers,
                                                       Duration exit_barrier) {
  const auto session = std::make_shared<StaticSession>(std::move(executor), options,
                                                       std::move(handlers), exit_barrier);
  return {session.get(), [session](RendezvousSession*) {
            session->close();
            session->drop_store();
          }};
}

}  // namespace muster
