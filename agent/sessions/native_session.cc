#include "agent/sessions/native_session.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <spdlog/spdlog.h>

#include "agent/sessions/host_search.h"
#include "agent/sessions/store_dialer.h"
#include "rendezvous/core/check.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/net/clock.h"
#include "rendezvous/net/reach_client.h"
#include "rendezvous/net/spawn_task.h"
#include "rendezvous/net/system_random.h"

namespace muster {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr Duration kConnectMost = std::chrono::seconds(2);
constexpr Duration kReachMost = std::chrono::seconds(1);
constexpr Duration kIntroduceMost = std::chrono::seconds(5);
// At the exit barrier the store may be gone because its node has ended: a short limit is enough.
constexpr Duration kBarrierConnectMost = std::chrono::seconds(10);

std::string random_instance() {
  return fmt::format("{:016x}{:016x}", random_number(), random_number());
}

NativeParticipant::Options participant_options(const AgentOptions& agent,
                                               const NativeSession::Options& options) {
  const RendezvousSettings& settings = agent.rendezvous.settings;
  NodeJoined node;
  node.name = {.addr = options.address, .pid = ::getpid(), .local_id = 0};
  node.instance = random_instance();
  node.local_world_size = agent.local_world_size;
  node.role = agent.role;
  node.run = settings.run;
  node.muster_version = MUSTER_VERSION;
  node.preferred_rank = agent.rendezvous.preferred_rank;
  node.spare = settings.spare;
  node.hosts_rendezvous = options.hosts_rendezvous;
  return {.settings = settings,
          .node = std::move(node),
          .host_text = options.host_text,
          .random = random_number()};
}

}  // namespace

NativeSession::NativeSession(asio::io_context& loop, const AgentOptions& agent, Handlers handlers,
                             Options options, std::unique_ptr<NativeClient> client)
    : loop_(loop),
      agent_(agent),
      handlers_(std::move(handlers)),
      options_(std::move(options)),
      participant_(participant_options(agent, options_)),
      timer_(loop) {
  begin(std::move(client));
}

NativeSession::~NativeSession() {
  *alive_ = false;
}

void NativeSession::begin(std::unique_ptr<NativeClient> client) {
  client_ = std::move(client);
  client_->start({.on_message = [this](const NativeMessage& message) { on_message(message); },
                  .on_lost =
                      [this](const std::string& reason) {
                        client_.reset();
                        feed(NativeParticipant::ConnectionBroke{reason});
                      }});
  feed(NativeParticipant::Connected{client_->welcome()});
}

void NativeSession::on_message(const NativeMessage& message) {
  const auto alive = alive_;
  feed(NativeParticipant::MessageReceived{message});
  if (!*alive) return;
  // A host that was away has no report of this node's workers: it gets the latest one again.
  if (std::holds_alternative<Resumed>(message) && report_) report(*report_);
  if (const auto* asked = std::get_if<NodeAsked>(&message)) answer(*asked);
}

void NativeSession::report(const NodeReport& report) {
  NodeReport latest = report;
  if (client_ && client_->welcome().takes_reports) client_->send(latest);
  report_ = std::move(latest);
}

void NativeSession::answer(const NodeAsked& asked) {
  if (!handlers_.on_asked || *open_questions_ >= kMaxQuestions) return;
  ++*open_questions_;
  // Counts down when the function below is destroyed, whether it was called or not.
  std::shared_ptr<void> open(nullptr, [count = open_questions_](void*) { --*count; });
  handlers_.on_asked(asked, [this, alive = alive_, number = asked.number,
                             open = std::move(open)](NodeAnswered answered) {
    if (!*alive || !client_) return;
    answered.number = number;
    client_->send(std::move(answered));
  });
}

/// An action can cause another event immediately. Such events are queued and handled in order.
void NativeSession::feed(NativeParticipant::Event event) {
  events_.push_back(std::move(event));
  if (std::exchange(feeding_, true)) return;
  const auto alive = alive_;
  for (; !events_.empty(); events_.pop_front()) {
    for (const NativeParticipant::Action& action : participant_.step(events_.front(), now())) {
      std::visit([this](const auto& a) { apply(a); }, action);
      if (!*alive) return;  // A handler has closed the session.
    }
  }
  feeding_ = false;
  arm_timer();
}

void NativeSession::arm_timer() {
  const auto deadline = participant_.next_deadline();
  timer_.cancel();
  if (!deadline) return;
  timer_.expires_at(to_steady(*deadline));
  timer_.async_wait([this, alive = alive_](const error_code& ec) {
    if (!ec && *alive) feed(NativeParticipant::TimeHasPassed{});
  });
}

// --- calls of the agent --------------------------------------------------------------------------

void NativeSession::join() {
  feed(NativeParticipant::JoinAsked{});
}

void NativeSession::workers_failed(const std::string& what) {
  feed(NativeParticipant::WorkersHaveFailed{what});
}

void NativeSession::finished(bool succeeded, const std::string& what) {
  feed(NativeParticipant::PartFinished{succeeded, what});
}

void NativeSession::leave() {
  feed(NativeParticipant::LeaveAsked{});
}

void NativeSession::peer_reached(std::int64_t generation, int group_rank) {
  feed(NativeParticipant::PeerReached{generation, group_rank});
}

void NativeSession::close() {
  handlers_ = {};
  timer_.cancel();
  *alive_ = false;
  if (store_) store_->close();
  if (client_) client_->close();
}

void NativeSession::drain(const std::function<void()>& done) {
  if (!client_) return done();
  client_->when_idle(done);
}

void NativeSession::host_moved() {
  if (!client_) return;
  client_->close();
  client_.reset();
  feed(NativeParticipant::ConnectionBroke{"it is not the host any more"});
}

// --- actions of the participant ------------------------------------------------------------------

void NativeSession::apply(const NativeParticipant::Connect&) {
  spawn_task(loop_.get_executor(), "native_connect", connect(alive_));
}

// A host that dies during the connect closes the connection before its welcome, as a torch server
// does. So HostKind::Other counts here as no answer, and the participant tries again.
asio::awaitable<void> NativeSession::connect(std::shared_ptr<bool> alive) {
  using Why = NativeParticipant::ConnectFailed::Why;
  bool may_be_old = false;
  if (options_.locate_host) {
    HostLocation location = options_.locate_host();
    may_be_old = location.may_be_old;
    const Why why = location.no_host ? Why::NobodyListens : Why::NoAnswer;
    if (location.endpoints.empty())
      co_return feed(NativeParticipant::ConnectFailed{why, std::move(location.why)});
    options_.endpoints = std::move(location.endpoints);
    options_.endpoint = 0;
    options_.host.tls_name = std::move(location.tls_name);
  }
  NativeClientOptions host = options_.host;
  host.connect_timeout = std::min(kConnectMost, participant_.lease());
  std::vector<RendezvousEndpoint> endpoints = options_.endpoints;
  FoundHost found = co_await find_host(loop_.get_executor(), std::move(host), std::move(endpoints),
                                       options_.endpoint);
  if (!*alive || participant_.phase() == NativeParticipant::Phase::Over) co_return;
  const Result<HostKind>& kind = found.kind;
  if (kind && *kind == HostKind::Muster) {
    options_.endpoint = found.endpoint;
    co_return begin(std::move(found.client));
  }
  NativeParticipant::ConnectFailed failed{Why::NoAnswer, {}};
  if (!kind) {
    const bool refused = kind.error() == boost::system::errc::connection_refused;
    failed = {refused && !may_be_old ? Why::NobodyListens : Why::NoAnswer, found.why};
  } else if (*kind == HostKind::Unproven || *kind == HostKind::TlsRefused ||
             *kind == HostKind::TlsLost) {
    failed.text = found.client->refusal();  // Another server has the port. The host may come back.
  } else if (*kind == HostKind::Refused) {
    // If the host can move, another program may have its old port now.
    failed = {options_.locate_host ? Why::NoAnswer : Why::NotWanted, found.client->refusal()};
  } else {
    failed.text = "it has closed the connection";
  }
  feed(std::move(failed));
}

void NativeSession::apply(const NativeParticipant::Disconnect&) {
  if (client_) client_->close();
  client_.reset();
}

void NativeSession::apply(const NativeParticipant::Send& action) {
  if (client_) client_->send(action.request);
}

void NativeSession::apply(const NativeParticipant::HostStore& action) {
  const std::int64_t round = action.round;
  handlers_.host_store([this, round, alive = alive_](const HostedStoreResult& store) {
    if (!*alive) return;
    if (store) return feed(NativeParticipant::StoreHosted{round, store->port});
    feed(NativeParticipant::StoreFailed{round,
                                        "cannot host the workers' store: " + store.error().what()});
  });
}

void NativeSession::apply(const NativeParticipant::BeginRound& action) {
  const RoundComplete& message = action.round;
  if (message.workers && message.store) {
    store_.reset();
    facts_ = facts_of(message);
    facts_.ranks = {.base_global_rank = message.workers->base_global_rank,
                    .world_size = message.workers->world_size,
                    .base_role_rank = message.workers->base_role_rank,
                    .role_world_size = message.workers->role_world_size};
    facts_.master_addr = message.store->addr;
    facts_.master_port = message.store->port;
  }
  introducing_ = SessionRound{.round = message.round, .facts = facts_, .job_decides = true};
  if (!options_.host.token) return begin_workers();
  spawn_task(loop_.get_executor(), "introduce",
             introduce(alive_, ++introductions_, message.workers.has_value()));
}

void NativeSession::begin_workers() {
  if (const auto round = std::exchange(introducing_, std::nullopt)) handlers_.on_round(*round);
}

// With a token the workers' store serves only addresses of members of its run. It learns this
// node's address from this question.
asio::awaitable<void> NativeSession::introduce(std::shared_ptr<bool> alive, int number,
                                               bool all_are_musters) {
  const StoreAddress store{facts_.master_addr, facts_.master_port};
  NativeReach question{.generation = facts_.generation,
                       .group_rank = facts_.group_rank.value,
                       .run_id = settings_.run_id};
  const auto reached = co_await ask_reach(loop_.get_executor(), store, std::move(question),
                                          kIntroduceMost, options_.host.token);
  if (!*alive || number != introductions_ || !introducing_) co_return;
  // Without an answer there is a warning only if rank 0's agent, a muster, hosts the store. The
  // store of a torchrun rank 0 admits every client. A store that rank 0's worker hosts is not up
  // yet.
  if (!reached && all_are_musters && agent_.rendezvous.shares_store)
    spdlog::warn(
        "the workers' store at {} does not know this node's token: it may refuse this node's "
        "workers",
        endpoint_text(store.addr, store.port));
  begin_workers();
}

RoundFacts NativeSession::facts_of(const RoundComplete& message) {
  RoundFacts facts;
  facts.group_rank = message.group_rank;
  facts.group_world_size = message.group_world_size;
  facts.restart_count = message.restart_count;
  facts.generation = message.generation;
  return facts;
}

void NativeSession::apply(const NativeParticipant::RestartWorkers& action) {
  const auto alive = alive_;
  begin_workers();  // The agent must have the round before it can be told to stop its workers.
  if (!*alive) return;
  handlers_.on_restart({.why = action.why, .is_planned = action.is_planned});
}

void NativeSession::apply(const NativeParticipant::EndJob& action) {
  introducing_.reset();
  handlers_.on_end({.succeeded = action.succeeded, .failed_node = action.who, .why = action.why});
}

void NativeSession::apply(const NativeParticipant::FailRendezvous& action) {
  introducing_.reset();
  handlers_.on_failed(action.why);
}

void NativeSession::apply(const NativeParticipant::Print& action) {
  spdlog::log(action.warning ? spdlog::level::warn : spdlog::level::info, "{}", action.text);
}

void NativeSession::apply(const NativeParticipant::SetReachAnswer& action) {
  if (handlers_.set_reach_answer) handlers_.set_reach_answer(action.generation, action.whole_at);
}

void NativeSession::apply(const NativeParticipant::AskReach& action) {
  if (std::exchange(reach_pending_, true)) return;
  spawn_task(loop_.get_executor(), "ask_reach", reach(alive_, action));
}

asio::awaitable<void> NativeSession::reach(std::shared_ptr<bool> alive,
                                           NativeParticipant::AskReach action) {
  const Duration limit = std::min(kReachMost, participant_.lease());
  action.question.run_id = settings_.run_id;
  const auto reached = co_await ask_reach(loop_.get_executor(), std::move(action.store),
                                          action.question, limit, options_.host.token);
  if (!*alive) co_return;
  reach_pending_ = false;
  NativeParticipant::ReachAnswered answer{.generation = action.question.generation};
  if (reached) {
    answer.whole = reached->whole;
    answer.age = reached->age;
  }
  feed(answer);
}

// --- torchrun nodes in the round -----------------------------------------------------------------

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
  facts.master_addr = store->addr;
  facts.master_port = store->port;
  facts_ = facts;
  round_number_ = round_number;
  feed(NativeParticipant::ExchangeDone{round_number});
}

// Torchrun nodes wait at their exit barrier until all nodes are there, and then close the run.
asio::awaitable<void> NativeSession::exit_barrier(std::shared_ptr<bool> alive) {
  store_ = store_client(std::min(settings_.read_timeout, kBarrierConnectMost));
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
