// The session for a rendezvous whose host is a muster: one connection, on which the host sends what
// happens.
//
// This class has only the sockets, timers and tasks. NativeParticipant decides.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/core/agent_options.h"
#include "agent/sessions/access_files.h"
#include "agent/sessions/answer_patience.h"
#include "agent/sessions/host_search.h"
#include "agent/sessions/rendezvous_session.h"
#include "agent/sessions/round_exchange.h"
#include "agent/sessions/waiting_round.h"
#include "rendezvous/access/token_proof.h"
#include "rendezvous/node/known_host.h"
#include "rendezvous/node/native_client.h"
#include "rendezvous/node/native_participant.h"
#include "rendezvous/rounds/settings.h"
#include "rendezvous/torchrun/rendezvous_state.h"

namespace muster {

/// The current location of a host that can move.
struct HostLocation {
  std::vector<RendezvousEndpoint> endpoints;  // Empty: unknown.
  std::string tls_name;                       // The name in its certificate. Empty: the endpoint's.
  bool no_host = false;                       // At the moment no agent is the host.
  /// Another agent may be the host by now, so a refused connection says nothing about the host.
  bool may_be_old = false;
  std::string why;  // If there are no endpoints: a sentence that says why.
};

class NativeSession final : public RendezvousSession {
 public:
  struct Options {
    std::string address;  // The address under which other nodes reach this node, without a scope.
    std::string scope;    // This node's interface to the others, if they have link-local addresses.
    bool hosts_rendezvous = false;
    NativeClientOptions host;
    /// Where the host may be.
    std::vector<RendezvousEndpoint> endpoints;
    std::size_t endpoint = 0;  // The index of the endpoint that `client` is connected to.
    /// Gives `endpoints` and the name in the host's certificate anew if the host can move. Called
    /// for each try.
    std::function<HostLocation()> locate_host;
    std::string host_text;  // All endpoints as one text, for people.
  };
  /// `client` is connected, has got the host's welcome, and is not started yet.
  NativeSession(boost::asio::io_context& loop, const AgentOptions& agent, Handlers handlers,
                Options options, std::unique_ptr<NativeClient> client);
  ~NativeSession() override;

  void join() override;
  void workers_failed(const WorkersFailure& failure) override;
  void progressed(std::optional<std::int64_t> step) override;
  void finished(bool succeeded, const std::string& what) override;
  void leave() override;
  void notify(const NodeNotice& notice) override;
  void saved() override;
  void peer_reached(std::int64_t generation, int group_rank) override;
  void report(const NodeReport& report) override;
  void close() override;
  void drain(const std::function<void()>& done) override;
  /// The peer of the connection is no longer the host. This node looks for the new host at once,
  /// without waiting until the old one has been silent for the lease.
  void host_moved();

 private:
  void begin(std::unique_ptr<NativeClient> client);
  void feed(NativeParticipant::Event event);
  void arm_timer();
  void apply(const NativeParticipant::Connect& action);
  void apply(const NativeParticipant::Disconnect& action);
  void apply(const NativeParticipant::Send& action);
  void apply(const NativeParticipant::HostStore& action);
  void apply(const NativeParticipant::ExchangeThroughStore& action);
  void apply(const NativeParticipant::EnterExitBarrier& action);
  void apply(const NativeParticipant::BeginRound& action);
  void apply(const NativeParticipant::RestartWorkers& action);
  void apply(const NativeParticipant::EndJob& action);
  void apply(const NativeParticipant::FailRendezvous& action);
  void apply(const NativeParticipant::AskReach& action);
  void apply(const NativeParticipant::SetReachAnswer& action);
  void apply(const NativeParticipant::TellWorkers& action);
  void apply(const NativeParticipant::Print& action);

  boost::asio::awaitable<void> connect(std::shared_ptr<bool> alive);
  boost::asio::awaitable<FoundHost> search(std::shared_ptr<bool> alive);
  boost::asio::awaitable<void> renew_tokens(std::shared_ptr<bool> alive);
  boost::asio::awaitable<void> renew_and_host_store(std::shared_ptr<bool> alive,
                                                    std::int64_t round);
  void host_store(std::int64_t round);
  boost::asio::awaitable<void> reach(std::shared_ptr<bool> alive,
                                     NativeParticipant::AskReach action);
  /// In a round with torchrun nodes: exchanges roles, master address and ranks through the store.
  boost::asio::awaitable<void> exchange(std::shared_ptr<bool> alive, RoundComplete round);
  /// Introduces this node to the workers' store of rank 0, before its workers connect there.
  boost::asio::awaitable<void> introduce(std::shared_ptr<bool> alive, int number,
                                         bool all_are_musters);
  void begin_workers();
  /// A client of the host's store. Not connected yet.
  std::shared_ptr<StoreClient> store_client(Duration timeout) const;
  boost::asio::awaitable<void> exit_barrier(std::shared_ptr<bool> alive);
  void on_message(const NativeMessage& message);
  void answer(const NodeAsked& asked);
  RoundExchange round_exchange(const RoundFacts& facts, std::int64_t round) const;
  static RoundFacts facts_of(const RoundComplete& message);

  boost::asio::io_context& loop_;
  const AgentOptions& agent_;
  const RendezvousSettings& settings_ = agent_.rendezvous.settings;
  Handlers handlers_;
  Options options_;
  std::shared_ptr<AccessFiles> access_files_;
  KnownHost known_host_;
  NodeTokens host_tokens_;
  NodeTokens store_tokens_;  // For the workers' store of rank 0.
  NativeParticipant participant_;
  std::deque<NativeParticipant::Event> events_;
  bool feeding_ = false;
  std::unique_ptr<NativeClient> client_;  // Null: not connected, a new connection is being made.
  boost::asio::steady_timer timer_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // For tasks that outlive this.
  // Questions that are not answered yet. A host asks no more than kMaxQuestions at once.
  std::shared_ptr<std::size_t> open_questions_ = std::make_shared<std::size_t>(0);
  std::shared_ptr<StoreClient> store_;  // For the exchange. Only in a round with torchrun nodes.
  RoundFacts facts_;                    // The facts of the newest round that started workers.
  std::int64_t round_number_ = -1;      // The round of the newest finished exchange.
  int exchanges_ = 0;                 // The number of the latest exchange. Older ones are ignored.
  std::optional<NodeReport> report_;  // The latest report.
  AnswerPatience patience_{std::chrono::seconds(2)};
  bool reach_pending_ = false;   // A question to rank 0's store waits for its answer.
  WaitingRound introducing_;     // The round whose workers wait for introduce().
  bool address_logged_ = false;  // The user knows that MASTER_ADDR is an IPv6 address.
};

}  // namespace muster
