#include "agent/sessions/native_session.h"

#include <algorithm>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <spdlog/spdlog.h>

#include "agent/sessions/retry_pause.h"
#include "agent/sessions/store_dialer.h"
#include "rendezvous/core/check.h"
#include "rendezvous/net/clock.h"
#include "rendezvous/net/spawn_task.h"

namespace muster {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr int kKeepAlivesPerLease = 3;
constexpr Duration kConnectLeast = std::chrono::milliseconds(100);
constexpr Duration kExitBarrier = std::chrono::seconds(300);  // torchrun's.

std::string why_restart(const RestartRound& message) {
  std::string who = to_string(message.who);
  switch (message.cause) {
    case RestartCause::WorkersFailed:
      return "on node " + who + " " + message.what;
    case RestartCause::NodeLost:
    case RestartCause::NodeLeft:
      return "node " + who + " is gone (" + message.what + ")";
    case RestartCause::NodeJoined:
      return "node " + who + " wants to join";
    case RestartCause::Requested:
      break;
  }
  return "a restart was asked for by node " + who + ": " + message.what;
}

std::int64_t seconds(Duration time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

std::string random_instance() {
  std::random_device random;
  std::string text;
  for (int i = 0; i < 4; ++i)
    text += fmt::format("{:08x}", random());
  return text;
}

}  // namespace

NativeSession::NativeSession(asio::io_context& loop, Handlers handlers, Options options,
                             std::unique_ptr<NativeClient> client)
    : loop_(loop),
      handlers_(std::move(handlers)),
      options_(std::move(options)),
      instance_(random_instance()),
      lease_(options_.settings.lease),
      keep_alive_(loop),
      farewell_(loop) {
  begin(std::move(client));
}

NativeSession::~NativeSession() {
  *alive_ = false;
}

void NativeSession::begin(std::unique_ptr<NativeClient> client) {
  client_ = std::move(client);
  learn_lease(client_->welcome());
  client_->start({.on_message =
                      [this](const NativeMessage& message) {
                        std::visit([this](const auto& m) { on(m); }, message);
                      },
                  .on_lost = [this](const std::string& reason) { on_lost(reason); }});
  keep_alive();
}

// The host's lease decides who is lost, whatever this node was told.
void NativeSession::learn_lease(const NativeWelcome& welcome) {
  if (welcome.lease == host_lease_) return;
  host_lease_ = welcome.lease;
  lease_ = std::min(options_.settings.lease, welcome.lease.value_or(options_.settings.lease));
  if (!welcome.lease || *welcome.lease == options_.settings.lease) return;
  // Who was not asked for a number need not hear that there is another.
  const auto level = options_.settings.lease_given ? spdlog::level::warn : spdlog::level::info;
  spdlog::log(
      level,
      "the rendezvous at {} takes a node for lost after {} s: that counts, and not --rdzv-conf "
      "lease={} of this node, which keeps alive by the shorter of the two",
      host_text(), seconds(*welcome.lease), seconds(options_.settings.lease));
}

std::string NativeSession::host_text() const {
  return endpoint_text(options_.host.host, options_.host.port);
}

void NativeSession::keep_alive() {
  keep_alive_.expires_after(lease_ / kKeepAlivesPerLease);
  keep_alive_.async_wait([this, alive = alive_](const error_code& ec) {
    if (ec || !*alive || !client_) return;
    client_->send(KeptAlive{});
    keep_alive();
  });
}

// --- what the agent wants ------------------------------------------------------------------------

void NativeSession::join() {
  if (phase_ == Phase::Over) return;
  phase_ = Phase::Joining;
  if (client_) ask_to_join();
}

void NativeSession::ask_to_join() {
  NodeJoined event;
  event.name = options_.node.name;
  event.instance = instance_;
  event.local_world_size = options_.node.local_world_size;
  event.role = options_.node.role;
  event.run = options_.settings.run;
  event.muster_version = MUSTER_VERSION;
  event.last_round = told_;
  event.life = told_by_;
  event.preferred_rank = options_.node.preferred_rank;
  event.spare = options_.settings.spare;
  event.hosts_rendezvous = options_.node.hosts_rendezvous;
  client_->send(event);
}

void NativeSession::workers_failed(const std::string& what) {
  if (phase_ != Phase::Running) return;
  phase_ = Phase::Outside;
  if (client_) client_->send(WorkersFailed{{}, round_, what});
}

void NativeSession::finished(bool succeeded, const std::string& what) {
  if (phase_ == Phase::Over) return;
  if (!client_) {
    // Nobody hears it, and nobody can tell us anything: our part is what we know.
    return end({.succeeded = succeeded,
                .who = "",
                .why = "the rendezvous at " + host_text() + " cannot be reached"});
  }
  phase_ = Phase::Finished;
  client_->send(NodeFinished{{}, round_, succeeded, what});
  if (succeeded && store_) spawn_task(loop_.get_executor(), "exit_barrier", exit_barrier(alive_));
  if (succeeded) return;  // The others may have work for days.
  farewell_.expires_after(options_.settings.close_timeout);
  farewell_.async_wait([this, alive = alive_](const error_code& ec) {
    if (!ec && *alive) end({.succeeded = false, .who = "", .why = ""});
  });
}

void NativeSession::leave() {
  if (client_) client_->send(NodeLeft{});
  phase_ = Phase::Over;
}

void NativeSession::close() {
  handlers_ = {};
  phase_ = Phase::Over;
  keep_alive_.cancel();
  farewell_.cancel();
  *alive_ = false;
  if (store_) store_->close();
  if (client_) client_->close();
}

void NativeSession::drain(const std::function<void()>& done) {
  if (!client_) return done();
  client_->when_idle(done);
}

// --- what the host says --------------------------------------------------------------------------

void NativeSession::on(const NativeRefused& message) {
  end({.succeeded = false, .who = "", .why = message.text});
}

void NativeSession::on(const NativeWaiting& message) {
  if (phase_ == Phase::Joining) spdlog::warn("waiting for the other nodes: {}", message.text);
  if (phase_ == Phase::Finished)
    spdlog::warn("the workers of this node have finished; waiting for the other nodes: {}",
                 message.text);
}

void NativeSession::on(const PrepareStore& message) {
  if (phase_ != Phase::Joining) return;  // A restart is on its way.
  const std::int64_t round = message.round;
  handlers_.host_store([this, round, alive = alive_](const HostedStoreResult& store) {
    if (!*alive || phase_ == Phase::Over) return;
    if (!store) {
      const std::string why = "cannot host the workers' store: " + store.error().what();
      if (client_) client_->send(NodeFinished{{}, round, false, why});
      phase_ = Phase::Over;
      return handlers_.on_failed(why);
    }
    if (client_) client_->send(StoreReady{{}, round, options_.node.name.addr, store->port});
  });
}

void NativeSession::on(const RoundComplete& message) {
  if (phase_ != Phase::Joining) return;
  told_ = message.round;
  told_by_ = message.life;
  SessionRound round{.round = message.round, .facts = {}, .job_decides = true};
  RoundFacts& facts = round.facts;
  facts.group_rank = message.group_rank;
  facts.group_world_size = message.group_world_size;
  facts.restart_count = message.restart_count;
  store_.reset();
  if (!message.workers || !message.store)
    return spawn_task(loop_.get_executor(), "round_exchange",
                      exchange(alive_, std::move(round), message.store));
  facts.ranks = {.base_global_rank = message.workers->base_global_rank,
                 .world_size = message.workers->world_size,
                 .base_role_rank = message.workers->base_role_rank,
                 .role_world_size = message.workers->role_world_size};
  facts.master_addr = message.store->addr;
  facts.master_port = message.store->port;
  begin_round(std::move(round));
}

void NativeSession::begin_round(SessionRound round) {
  round_ = round.round;
  fruitless_ = 0;
  phase_ = Phase::Running;
  handlers_.on_round(std::move(round));
}

void NativeSession::on(const RestartRound& message) {
  told_ = message.round;  // Less than before if the host has begun again.
  told_by_ = message.life;
  ++exchanges_;
  if (phase_ == Phase::Joining) return ask_to_join();  // It was in that round, by then.
  if (phase_ != Phase::Running) return;
  phase_ = Phase::Outside;
  handlers_.on_restart(why_restart(message));
}

void NativeSession::on(const RunClosed&) {
  const std::string why = "a torchrun node has ended the run: there will be no further round";
  if (phase_ != Phase::Joining) return spdlog::info(why);
  if (options_.settings.spare) return end({.succeeded = true, .who = "", .why = why});
  phase_ = Phase::Over;
  handlers_.on_failed(why);
}

void NativeSession::on(const RunEnded& message) {
  end({.succeeded = message.succeeded,
       .who = message.who ? "node " + to_string(*message.who) : std::string(),
       .why = message.why});
}

void NativeSession::on(const JoinRefused& message) {
  if (phase_ == Phase::Over) return;
  phase_ = Phase::Over;
  const bool refused = message.why != JoinRefused::Why::TimedOut;
  handlers_.on_failed("the rendezvous at " + host_text() +
                      (refused ? " refused this node: " : ": ") + message.text);
}

void NativeSession::on(const NotAMember&) {
  if (phase_ == Phase::Joining) return ask_to_join();
  if (phase_ == Phase::Finished) {
    spdlog::warn(
        "this node was not heard in time when its workers finished, and the others went on without "
        "it: of them nothing can be said");
    return end({.succeeded = true, .who = "", .why = ""});
  }
  if (phase_ != Phase::Running) return;
  phase_ = Phase::Outside;
  handlers_.on_restart("this node was not heard in time, and the others went on without it");
}

void NativeSession::end(SessionEnd end) {
  if (std::exchange(phase_, Phase::Over) == Phase::Over) return;
  keep_alive_.cancel();
  farewell_.cancel();
  handlers_.on_end(std::move(end));
}

// --- torchrun nodes in the round -----------------------------------------------------------------

RoundExchange NativeSession::round_exchange(const RoundFacts& facts, std::int64_t round) const {
  return RoundExchange(
      store_,
      {.prefix = "torch.rendezvous." + options_.settings.run_id + "." + std::to_string(round),
       .group_rank = facts.group_rank,
       .group_world_size = facts.group_world_size,
       .role = options_.node.role,
       .local_world_size = options_.node.local_world_size,
       .identical = options_.worker_identical,
       .timeout = options_.settings.read_timeout},
      [](const std::string& whom) { spdlog::warn("waiting for {}", whom); });
}

asio::awaitable<void> NativeSession::exchange(std::shared_ptr<bool> alive, SessionRound round,
                                              std::optional<StoreAddress> store) {
  const int number = ++exchanges_;
  ++fruitless_;  // Until it has begun.
  const auto is_over = [this, alive, number] {
    return !*alive || phase_ != Phase::Joining || number != exchanges_;
  };
  store_ = std::make_shared<StoreClient>(
      loop_.get_executor(), StoreClientOptions{.host = options_.host.host,
                                               .port = options_.host.port,
                                               .timeout = options_.settings.read_timeout});
  const auto client = store_;
  const Result<void> connected = co_await client->connect();
  if (is_over()) co_return;
  std::string trouble = connected ? std::string() : connected.error().message();
  RoundExchange others = round_exchange(round.facts, round.round);
  if (trouble.empty()) {
    const auto told = co_await others.publish_role();
    if (!told) trouble = told.error().reason;
  }
  if (is_over()) co_return;
  if (trouble.empty() && round.facts.group_rank.value == 0) {
    // Torchrun nodes know no other way to learn it.
    // Where they are, not as we call ourselves: the host has seen to it.
    MasterAddress master{options_.node.name.addr, 0};
    if (store) master = {store->addr, store->port};
    const auto published = co_await others.publish_master(master);
    if (!published) trouble = published.error().reason;
  } else if (trouble.empty() && !store) {
    EarlierRounds earlier;
    const auto master = co_await others.find_master(earlier);
    if (master)
      store = StoreAddress{master->addr, master->port};
    else
      trouble = master.error().reason;
  }
  if (is_over()) co_return;
  if (trouble.empty()) {
    const auto ranks = co_await others.ranks();
    if (ranks)
      round.facts.ranks = *ranks;
    else
      trouble = ranks.error().reason;
  }
  if (is_over()) co_return;
  if (!store || !trouble.empty()) co_return came_to_nothing(round.round, trouble);
  round.facts.master_addr = store->addr;
  round.facts.master_port = store->port;
  facts_ = round.facts;
  begin_round(std::move(round));
}

void NativeSession::came_to_nothing(std::int64_t round, const std::string& trouble) {
  const std::string what =
      "round " + std::to_string(round) + " was complete, but came to nothing: " + trouble;
  if (fruitless_ < kFruitlessRounds) {
    spdlog::warn("{}; asking for another one", what);
    if (client_) client_->send(RestartRequested{{}, trouble});
    return;
  }
  if (client_) client_->send(NodeFinished{{}, round, false, what});
  phase_ = Phase::Over;
  handlers_.on_failed(what + ", as the " + std::to_string(fruitless_ - 1) + " rounds before it");
}

// Torchrun nodes wait in theirs until all have come, and then close the run.
asio::awaitable<void> NativeSession::exit_barrier(std::shared_ptr<bool> alive) {
  const auto client = store_;
  RoundExchange others = round_exchange(facts_, round_);
  const auto all = co_await others.exit_barrier(kExitBarrier);
  if (!*alive || phase_ != Phase::Finished) co_return;
  if (!all) spdlog::warn("the exit barrier was left: {}", all.error().reason);
  end({.succeeded = true, .who = "", .why = ""});
}

// --- a connection that breaks --------------------------------------------------------------------

void NativeSession::on_lost(const std::string& reason) {
  if (phase_ == Phase::Over) return;
  keep_alive_.cancel();
  client_.reset();
  if (phase_ == Phase::Finished) {
    // Hosts say the end before they go. This one was killed, or its machine is gone.
    spdlog::warn(
        "lost the rendezvous at {} ({}) before the end of the job was known: the workers of this "
        "node have succeeded, and of the other nodes nothing can be said",
        host_text(), reason);
    return end({.succeeded = true, .who = "", .why = ""});
  }
  spdlog::warn("lost the rendezvous at {} ({}): connecting again for {} s", host_text(), reason,
               seconds(options_.host.connect_timeout));
  spawn_task(loop_.get_executor(), "native_reconnect", reconnect(alive_, reason));
}

// A host that dies just then closes the connection before it has said who it is, as a torch server
// would: that is no answer yet.
asio::awaitable<void> NativeSession::reconnect(std::shared_ptr<bool> alive, std::string reason) {
  const Instant deadline = now() + options_.host.connect_timeout;
  RetryPause pause(loop_.get_executor());
  std::string why = "the rendezvous at " + host_text() + " was lost (" + reason + ") and ";
  bool refused = false;
  for (;;) {
    NativeClientOptions host = options_.host;
    host.connect_timeout = std::max(deadline - now(), kConnectLeast);
    auto client = std::make_unique<NativeClient>(loop_.get_executor(), std::move(host));
    const Result<HostKind> kind = co_await client->connect();
    if (!*alive || phase_ == Phase::Over) co_return;
    if (kind && *kind == HostKind::Muster) co_return back(std::move(client));
    refused = kind && *kind == HostKind::Refused;
    if (refused || now() >= deadline) {
      if (!kind)
        why += "cannot be reached again: " + kind.error().message();
      else if (refused)
        why += "refuses us now: " + client->refusal();
      else
        why += "something else listens there now";
      break;
    }
    co_await pause.wait(deadline);
    if (!*alive || phase_ == Phase::Over) co_return;
  }
  if (!refused)
    why += " (tried for " + std::to_string(seconds(options_.host.connect_timeout)) +
           " s; --rdzv-conf read_timeout=SECONDS changes that)";
  if (phase_ != Phase::Joining) co_return end({.succeeded = false, .who = "", .why = why});
  phase_ = Phase::Over;
  handlers_.on_failed(why);
}

void NativeSession::back(std::unique_ptr<NativeClient> client) {
  begin(std::move(client));
  if (phase_ == Phase::Joining) return ask_to_join();
  if (phase_ != Phase::Running) return;
  phase_ = Phase::Outside;
  handlers_.on_restart("the rendezvous had been lost, and is back");
}

}  // namespace muster
