// A rendezvous whose host is muster: one connection, and the host says what happens.
//
// Sockets, timers and tasks only: NativeParticipant decides.
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
#include "agent/sessions/rendezvous_session.h"
#include "agent/sessions/round_exchange.h"
#include "rendezvous/core/rendezvous_state.h"
#include "rendezvous/core/settings.h"
#include "rendezvous/net/native_client.h"
#include "rendezvous/service/native_participant.h"

namespace muster {

/// Where a host is that moves.
struct HostLocation {
  std::vector<RendezvousEndpoint> endpoints;  // Empty: not known.
  bool nobody = false;                        // Just now there was no host.
  std::string why;                            // A sentence, if there are no endpoints.
};

class NativeSession final : public RendezvousSession {
 public:
  struct Options {
    std::string address;  // This node's, to the others.
    bool hosts_rendezvous = false;
    NativeClientOptions host;
    /// Where the host may be; `host` is at one of them.
    std::vector<RendezvousEndpoint> endpoints;
    std::size_t endpoint = 0;  // The one of `client`.
    /// Instead of `endpoints`, where the host moves: asked for each try.
    std::function<HostLocation()> where;
    std::string host_text;  // All of them, for people.
  };
  /// `client`: connected and welcome, not started.
  NativeSession(boost::asio::io_context& loop, const AgentOptions& agent, Handlers handlers,
                Options options, std::unique_ptr<NativeClient> client);
  ~NativeSession() override;

  void join() override;
  void workers_failed(const std::string& what) override;
  void finished(bool succeeded, const std::string& what) override;
  void leave() override;
  void peer_reached(std::int64_t generation, int group_rank) override;
  void report(const NodeReport& report) override;
  void close() override;
  void drain(const std::function<void()>& done) override;
  /// What this node is connected with does not host the rendezvous any more: it looks for the host
  /// at once, instead of when that has been silent for the lease.
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
  void apply(const NativeParticipant::GiveUp& action);
  void apply(const NativeParticipant::AskReach& action);
  void apply(const NativeParticipant::Vouch& action);
  void apply(const NativeParticipant::Say& action);

  boost::asio::awaitable<void> connect(std::shared_ptr<bool> alive);
  boost::asio::awaitable<void> reach(std::shared_ptr<bool> alive,
                                     NativeParticipant::AskReach action);
  /// A round with torchrun nodes in it: what its nodes tell each other goes through the store.
  boost::asio::awaitable<void> exchange(std::shared_ptr<bool> alive, RoundComplete round);
  /// Lets rank 0's store know this node, before the workers come to it.
  boost::asio::awaitable<void> introduce(std::shared_ptr<bool> alive, int number,
                                         bool all_are_musters);
  void begin_workers();
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
  NativeParticipant participant_;
  std::deque<NativeParticipant::Event> events_;
  bool feeding_ = false;
  std::unique_ptr<NativeClient> client_;  // Nothing: it is being connected again.
  boost::asio::steady_timer timer_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // For tasks that outlive us.
  std::shared_ptr<StoreClient> store_;  // For the exchange; only in a round with torchrun nodes.
  RoundFacts facts_;                    // Of the newest round whose workers were started.
  std::int64_t round_number_ = -1;      // Of the newest exchange that was done.
  int exchanges_ = 0;                   // The latest one counts.
  std::optional<NodeReport> report_;    // The latest one.
  bool asking_ = false;                 // Rank 0's store, whether the round is whole.
  std::optional<SessionRound> introducing_;  // The round whose workers wait for introduce().
  int introductions_ = 0;                    // The latest one counts.
};

}  // namespace muster
