// A rendezvous whose host is muster: one connection, and the host says what happens.
//
// The host counts restarts and decides. If the connection is lost, the workers go on while it is
// made again for as long as `connect_timeout`; then everybody meets anew.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/sessions/rendezvous_session.h"
#include "agent/sessions/round_exchange.h"
#include "rendezvous/core/rendezvous_state.h"
#include "rendezvous/core/settings.h"
#include "rendezvous/net/native_client.h"

namespace muster {

/// What this node is, to the others.
struct SessionNode {
  NodeName name;
  int local_world_size = 1;
  std::string role;
  std::optional<int> preferred_rank;
  bool hosts_rendezvous = false;
};

class NativeSession final : public RendezvousSession {
 public:
  struct Options {
    RendezvousSettings settings;
    SessionNode node;
    NativeClientOptions host;
    bool worker_identical = false;  // TORCH_ELASTIC_WORKER_IDENTICAL=1
  };
  /// `client`: connected and welcome, not started.
  NativeSession(boost::asio::io_context& loop, Handlers handlers, Options options,
                std::unique_ptr<NativeClient> client);
  ~NativeSession() override;

  void join() override;
  void workers_failed(const std::string& what) override;
  void finished(bool succeeded, const std::string& what) override;
  void leave() override;
  void close() override;
  void drain(const std::function<void()>& done) override;

 private:
  enum class Phase {
    Outside,   // Its workers are being stopped, or have not begun.
    Joining,   // Has asked for a round.
    Running,   // In a round.
    Finished,  // Waits for the others.
    Over,
  };

  void begin(std::unique_ptr<NativeClient> client);
  void learn_lease(const NativeWelcome& welcome);
  void ask_to_join();
  void keep_alive();
  void on(const NativeWelcome&) {}  // Read when the connection was made.
  void on(const NativeRefused& message);
  void on(const NativeWaiting& message);
  void on(const PrepareStore& message);
  void on(const RoundComplete& message);
  void on(const RestartRound& message);
  void on(const RunClosed& message);
  void on(const RunEnded& message);
  void on(const JoinRefused& message);
  void on(const NotAMember& message);
  void on_lost(const std::string& reason);
  void begin_round(SessionRound round);
  /// A round with torchrun nodes in it: what its nodes tell each other goes through the store.
  boost::asio::awaitable<void> exchange(std::shared_ptr<bool> alive, SessionRound round,
                                        std::optional<StoreAddress> store);
  /// The same with another round, or the end of the job when it was not the first time.
  void came_to_nothing(std::int64_t round, const std::string& trouble);
  boost::asio::awaitable<void> exit_barrier(std::shared_ptr<bool> alive);
  RoundExchange round_exchange(const RoundFacts& facts, std::int64_t round) const;
  boost::asio::awaitable<void> reconnect(std::shared_ptr<bool> alive, std::string reason);
  void back(std::unique_ptr<NativeClient> client);
  void end(SessionEnd end);
  std::string host_text() const;

  boost::asio::io_context& loop_;
  Handlers handlers_;
  Options options_;
  std::unique_ptr<NativeClient> client_;  // Nothing: it is being connected again.
  std::string instance_;                  // Who we are, if another has our name.
  Duration lease_;                        // Of the host, or ours if that is shorter.
  std::optional<Duration> host_lease_;    // As it was told last.
  boost::asio::steady_timer keep_alive_;
  boost::asio::steady_timer farewell_;  // A failure is told for so long at most.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // For tasks that outlive us.
  std::shared_ptr<StoreClient> store_;  // For the exchange; only in a round with torchrun nodes.
  RoundFacts facts_;                    // Of that round.
  int exchanges_ = 0;                   // The latest one counts.
  int fruitless_ = 0;                   // Of them, since one led to a round with workers.
  Phase phase_ = Phase::Outside;
  std::int64_t round_ = -1;   // Of the workers.
  std::int64_t told_ = -1;    // The newest that we heard of.
  std::int64_t told_by_ = 0;  // Its RoundComplete::life.
};

}  // namespace muster
