// One connection to the rendezvous state in a store that a torchrun node hosts.
#pragma once

#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "agent/sessions/store_dialer.h"
#include "rendezvous/torchrun/rendezvous_state.h"

namespace muster {

/// Reads the state, and writes it by compare-and-set. The member functions are coroutines, of which
/// only one may run at a time.
class C10dStateLink {
 public:
  enum class Outcome {
    Done,
    Stale,       // Not written: another node has written meanwhile, and state() is its state.
    Lost,        // The connection is lost. error() says why.
    Unreadable,  // The value under the key is no state. error() says why.
  };
  C10dStateLink(const boost::asio::any_io_executor& executor, const StoreDialer::Target& target,
                const std::string& run_id);

  /// Connects, trying until `deadline`, and reads the state.
  boost::asio::awaitable<Outcome> connect(Instant deadline);
  boost::asio::awaitable<Outcome> read();
  boost::asio::awaitable<Outcome> write(RendezvousState state);
  void close();

  bool connected() const { return client_ && client_->connected(); }
  const RendezvousState& state() const { return state_; }
  StoreClient& client() { return *client_; }
  const std::string& error() const { return error_; }

 private:
  boost::asio::awaitable<Outcome> read_or_create();
  Outcome lost(const std::string& why);
  Outcome update_state(const std::string& text);

  StoreDialer dialer_;
  std::shared_ptr<StoreClient> client_;
  std::string key_;
  std::string token_;  // The encoded text of state_.
  RendezvousState state_;
  std::string error_;
};

}  // namespace muster
