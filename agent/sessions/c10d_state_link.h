// One connection with the rendezvous state in a store that a torchrun node hosts.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "agent/sessions/store_dialer.h"
#include "rendezvous/core/rendezvous_state.h"

namespace muster {

/// Reads and writes by compare-and-set. Coroutines, one at a time.
class C10dStateLink {
 public:
  enum class Outcome {
    Done,
    Stale,       // Not written: state() is what somebody else has written in the meantime.
    Lost,        // No connection any more; error() says why.
    Unreadable,  // What is there is no state; error() says why.
  };
  C10dStateLink(const boost::asio::any_io_executor& executor, const StoreDialer::Target& target,
                const std::string& run_id);

  /// Until there is a connection, and the state has been read.
  boost::asio::awaitable<Outcome> connect(std::optional<Instant> deadline);
  boost::asio::awaitable<Outcome> read();
  boost::asio::awaitable<Outcome> write(RendezvousState state);
  void close();

  bool connected() const { return client_ && client_->connected(); }
  const RendezvousState& state() const { return state_; }
  StoreClient& client() { return *client_; }
  const std::string& error() const { return error_; }

 private:
  boost::asio::awaitable<Outcome> make_sure();
  Outcome lost(const std::string& why);
  Outcome take(const std::string& text);

  StoreDialer dialer_;
  std::shared_ptr<StoreClient> client_;
  std::string key_;
  std::string token_;  // The text of state_.
  RendezvousState state_;
  std::string error_;
};

}  // namespace muster
