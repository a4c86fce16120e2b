#include "agent/sessions/native_session.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <spdlog/spdlog.h>

#include "agent/core/waiting_advice.h"
#include "agent/core/worker_command.h"
#include "agent/sessions/host_places.h"
#include "agent/sessions/host_search.h"
#include "agent/sessions/store_dialer.h"
#include "base/address_scope.h"
#include "base/check.h"
#include "base/net/connect_errors.h"
#include "base/net/name_lookup.h"
#include "base/net/spawn_task.h"
#include "base/system/clock.h"
#include "base/system/system_random.h"
#include "rendezvous/node/reach_client.h"
#include "rendezvous/rounds/limits.h"

namespace muster {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr Duration kMaxConnect = std::chrono::seconds(2);
constexpr Duration kMaxReach = std::chrono::seconds(1);
constexpr Duration kMaxIntroduce = std::chrono::seconds(5);

NativeParticipant::Options participant_options(const AgentOptions& agent,
                                               const NativeSession::Options& options) {
  const RendezvousSettings& settings = agent.rendezvous.settings;
  NodeJoined node;
  node.name = {.addr = options.address, .pid = ::getpid(), .local_id = 0};
  node.instance = random_id();
  node.local_world_size = agent.local_world_size;
  node.role = agent.role;
  node.run = settings.run;
  node.muster_version = MUSTER_VERSION;
  node.preferred_rank = agent.rendezvous.preferred_rank;
  node.spare = settings.spare;
  node.hosts_rendezvous = options.hosts_rendezvous;
  node.command = command_digest(agent);
  node.has_progress_file = !agent.progress_file.empty();
  return {.settings = settings,
          .node = std::move(node),
          .host_text = options.host_text,
          .advice = waiting_advice(agent),
          .random = random_number()};
}

}  // namespace

NativeSession::NativeSession(asio::io_context& loop, const AgentOptions& agent, Handlers handlers,
                             Options options, std::unique_ptr<NativeClient> client)
    : loop_(loop),
      agent_(agent),
      handlers_(std::move(handlers)),
      options_(std::move(options)),
      access_files_(access_files(agent.rendezvous)),
      host_tokens_(options_.host.token),
      store_tokens_(options_.host.token),
      participant_(participant_options(agent, options_)),
      timer_(loop) {
  begin(std::move(client));
}

NativeSession::~NativeSession() {
  *alive_ = false;
}

void NativeSession::begin(std::unique_ptr<NativeClient> client) {
  client_ = std::move(client);
  known_host_.meet(met_host(*client_));
  client_->start({.on_message = [this](const NativeMessage& message) { on_message(message); },
                  .on_lost =
                      [this](const std::string& reason) {
                        client_.reset();
                        feed(NativeParticipant::ConnectionBroke{reason});
                      }});
  feed(NativeParticipant::Connected{client_->welcome(), client_->is_proxied()});
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

void NativeSession::workers_failed(const WorkersFailure& failure) {
  feed(NativeParticipant::WorkersHaveFailed{failure.what, failure.hung});
}

void NativeSession::progressed(std::optional<std::int64_t> step) {
  feed(NativeParticipant::ProgressMade{step});
}

void NativeSession::finished(bool succeeded, const std::string& what) {
  feed(NativeParticipant::PartFinished{succeeded, what});
}

void NativeSession::leave() {
  feed(NativeParticipant::LeaveAsked{});
}

void NativeSession::notify(const NodeNotice& notice) {
  feed(NativeParticipant::NoticeGiven{notice.left, notice.reason});
}

void NativeSession::saved() {
  feed(NativeParticipant::WorkersHaveSaved{});
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
  using Found = NativeParticipant::ConnectFailed::Found;
  bool may_be_old = false;
  if (options_.locate_host) {
    HostLocation location = options_.locate_host();
    may_be_old = location.may_be_old;
    const Why why = location.no_host ? Why::NobodyListens : Why::NoAnswer;
    if (location.endpoints.empty())
      co_return feed(NativeParticipant::ConnectFailed{
          why, std::move(location.why), location.no_host ? Found::Nobody : Found::NoWay});
    options_.endpoints = std::move(location.endpoints);
    options_.endpoint = 0;
    options_.host.tls_name = std::move(location.tls_name);
  }
  // The files may have been renewed since this node connected, perhaps long ago.
  co_await renew_tokens(alive);
  if (!*alive || participant_.phase() == NativeParticipant::Phase::Over) co_return;
  FoundHost found = co_await search(alive);
  if (!*alive || participant_.phase() == NativeParticipant::Phase::Over) co_return;
  patience_.tried(found.was_silent);
  const Result<HostKind>& kind = found.kind;
  if (kind && *kind == HostKind::Muster) {
    options_.endpoint = found.endpoint;
    co_return begin(std::move(found.client));
  }
  NativeParticipant::ConnectFailed failed{Why::NoAnswer, {}, Found::Refusal};
  if (!kind) {
    const bool refused = kind.error() == boost::system::errc::connection_refused;
    failed = {refused && !may_be_old ? Why::NobodyListens : Why::NoAnswer, found.why,
              never_got_there(kind.error()) ? Found::NoWay : Found::Nobody};
  } else if (*kind == HostKind::Unproven || *kind == HostKind::TlsRefused ||
             *kind == HostKind::TlsLost) {
    failed.text = found.client->refusal();  // Another server has the port. The host may come back.
  } else if (*kind == HostKind::Refused) {
    // If the host can move, another program may have its old port now.
    failed.why = options_.locate_host ? Why::NoAnswer : Why::NotWanted;
    failed.text = found.client->refusal();
  } else {
    failed.text = "it has closed the connection";
    failed.found = Found::Nobody;  // A proxy, for example, whose host is away.
  }
  feed(std::move(failed));
}

asio::awaitable<FoundHost> NativeSession::search(std::shared_ptr<bool> alive) {
  FoundHost found;
  const std::vector<SharedTokenCrypto> tokens = host_tokens_.to_try();
  for (const SharedTokenCrypto& token : tokens) {
    NativeClientOptions host = options_.host;
    host.token = token;
    host.connect_timeout = std::min(kMaxConnect, participant_.lease());
    host.answer_timeout = patience_.limit();
    std::vector<RendezvousEndpoint> endpoints = options_.endpoints;
    found = co_await find_host(loop_.get_executor(), std::move(host), std::move(endpoints),
                               options_.endpoint, known_host_);
    if (!*alive) break;
    if (found.kind && *found.kind == HostKind::Muster) host_tokens_.proven(token);
    if (!found.kind || (*found.kind != HostKind::Unproven && *found.kind != HostKind::Refused))
      break;
  }
  co_return found;
}

asio::awaitable<void> NativeSession::renew_tokens(std::shared_ptr<bool> alive) {
  const SharedTokenCrypto token = co_await renew_access(access_files_);
  if (!*alive) co_return;
  host_tokens_.read(token);
  store_tokens_.read(token);
}

void NativeSession::apply(const NativeParticipant::Disconnect&) {
  if (client_) client_->close();
  client_.reset();
}

void NativeSession::apply(const NativeParticipant::Send& action) {
  if (client_) client_->send(action.request);
}

void NativeSession::apply(const NativeParticipant::HostStore& action) {
  if (!options_.host.token) return host_store(action.round);
  spawn_task(loop_.get_executor(), "host_store", renew_and_host_store(alive_, action.round));
}

// Nodes that were started after the token was renewed have the new one only.
asio::awaitable<void> NativeSession::renew_and_host_store(std::shared_ptr<bool> alive,
                                                          std::int64_t round) {
  co_await renew_tokens(alive);
  if (!*alive) co_return;
  if (handlers_.set_store_token) handlers_.set_store_token(store_tokens_.to_try().front());
  host_store(round);
}

void NativeSession::host_store(std::int64_t round) {
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
    facts_.master_addr = with_scope(message.store->addr, options_.scope);
    facts_.master_port = message.store->port;
    // While the host is silent, this node asks rank 0's store within a second. The name must be
    // known then.
    if (message.group_world_size > 1) begin_look_up(loop_.get_executor(), facts_.master_addr);
  }
  introducing_.begin({.round = message.round, .facts = facts_, .job_decides = true});
  if (!options_.host.token) return begin_workers();
  spawn_task(loop_.get_executor(), "introduce",
             introduce(alive_, introducing_.number(), message.workers.has_value()));
}

void NativeSession::begin_workers() {
  const auto round = introducing_.take_round();
  if (!round) return;
  const RoundFacts& facts = round->facts;
  if (facts.group_rank.value == 0 && facts.master_addr.find(':') != std::string::npos &&
      !std::exchange(address_logged_, true))
    spdlog::warn(
        "MASTER_ADDR is the IPv6 address {}: a script that writes tcp://MASTER_ADDR:MASTER_PORT "
        "needs a name there; --local-addr=NAME gives the name by which all nodes reach this one",
        facts.master_addr);
  const auto alive = alive_;
  handlers_.on_round(*round);
  if (!*alive) return;
  if (const auto notice = introducing_.take_notice(); notice && handlers_.on_notice)
    handlers_.on_notice(*notice);
}

void NativeSession::apply(const NativeParticipant::TellWorkers& action) {
  const JobNotice notice{.deadline = action.deadline,
                         .reason = action.reason,
                         .doomed_ranks = action.ranks,
                         .this_node = action.this_node,
                         .stops = action.stops};
  if (introducing_.keep(notice)) return;  // The agent must have the round first.
  if (handlers_.on_notice) handlers_.on_notice(notice);
}

// With a token the workers' store serves only addresses of members of its run. It learns this
// node's address from this question.
asio::awaitable<void> NativeSession::introduce(std::shared_ptr<bool> alive, int number,
                                               bool all_are_musters) {
  const StoreAddress store{facts_.master_addr, facts_.master_port};
  NativeReach question{.generation = facts_.generation,
                       .group_rank = facts_.group_rank.value,
                       .run_id = settings_.run_id};
  co_await renew_tokens(alive);
  if (!*alive || !introducing_.is_waiting(number)) co_return;
  bool reached = false;
  const std::vector<SharedTokenCrypto> tokens = store_tokens_.to_try();
  for (const SharedTokenCrypto& token : tokens) {
    NativeReach asked = question;
    const auto answer =
        co_await ask_reach(loop_.get_executor(), store, std::move(asked), kMaxIntroduce, token);
    if (!*alive || !introducing_.is_waiting(number)) co_return;
    reached = answer.has_value();
    if (reached) store_tokens_.proven(token);
    if (reached) break;
  }
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
  handlers_.on_restart(
      {.why = action.why, .is_planned = action.is_planned, .for_notice = action.for_notice});
}

void NativeSession::apply(const NativeParticipant::EndJob& action) {
  introducing_.cancel();
  handlers_.on_end({.succeeded = action.succeeded,
                    .failed_node = action.who,
                    .why = action.why,
                    .preempted = action.preempted,
                    .without_progress = action.without_progress,
                    .hopeless = action.hopeless});
}

void NativeSession::apply(const NativeParticipant::FailRendezvous& action) {
  introducing_.cancel();
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
  const Duration limit = std::min(kMaxReach, participant_.lease());
  action.question.run_id = settings_.run_id;
  action.store.addr = with_scope(action.store.addr, options_.scope);
  const auto reached = co_await ask_reach(loop_.get_executor(), std::move(action.store),
                                          action.question, limit, store_tokens_.proven());
  if (!*alive) co_return;
  reach_pending_ = false;
  NativeParticipant::ReachAnswered answer{.generation = action.question.generation};
  if (reached) {
    answer.whole = reached->whole;
    answer.age = reached->age;
  }
  feed(answer);
}

}  // namespace muster
