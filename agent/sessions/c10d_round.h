// The exchange of one round of a C10dSession, on its own connection to the store.
#pragma once

#include <functional>
#include <memory>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "agent/core/agent_options.h"
#include "agent/sessions/rendezvous_session.h"
#include "agent/sessions/round_exchange.h"
#include "agent/sessions/store_dialer.h"
#include "rendezvous/torchrun/c10d_participant.h"

namespace muster {

/// Asks the agent to host the workers' store.
using HostStore = std::function<void(std::function<void(const HostedStoreResult&)> done)>;

class C10dRound {
 public:
  C10dRound(boost::asio::any_io_executor executor, const AgentOptions& options, RoundReady ready);

  /// Runs the exchange of a complete round and returns what the workers need. The restart count is
  /// not filled in.
  boost::asio::awaitable<ExchangeResult<SessionRound>> begin(HostStore host);
  /// Waits at the exit barrier, for `limit` at most.
  boost::asio::awaitable<ExchangeResult<void>> end(Duration limit);
  /// Closes this for good. A running begin() or end() fails soon.
  void close();

  const RoundReady& ready() const { return ready_; }

 private:
  boost::asio::awaitable<ExchangeResult<void>> connect(Duration limit);
  boost::asio::awaitable<ExchangeResult<MasterAddress>> master(RoundExchange& exchange,
                                                               HostStore host);
  RoundExchange exchange() const;
  EarlierRounds earlier() const;
  std::string prefix(std::int64_t round) const;

  boost::asio::any_io_executor executor_;
  const AgentOptions& options_;
  const RendezvousSettings& settings_ = options_.rendezvous.settings;
  RoundReady ready_;
  StoreDialer dialer_;
  std::shared_ptr<StoreClient> client_;
  bool closed_ = false;
};

}  // namespace muster
